//! The command line.

use crate::app::Options;
use crate::ledger::command::UsageArgs;
use crate::ledger::{self, place};
use crate::publish::clusters;
use crate::scrape::health::Limits;
use crate::serve::connections;
use crate::{fleet, scrape};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Tells Envoy which inference engines there are, which of them answer, and how loaded they are.
///
/// Reads a list of endpoints, scrapes each engine's /metrics, and serves the Warmroute filter's
/// stream, the hosts of Envoy's cluster, and a page for people.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run until SIGTERM or SIGINT.
    Run(RunArgs),
    /// Print what tenants used and what it costs, also while an agent runs.
    Usage(UsageArgs),
    /// Check configuration and print what was understood; exit status 1 if it would be refused.
    CheckConfig {
        /// A YAML file, or a folder that is read with all its subfolders.
        path: PathBuf,
    },
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A YAML file, or a folder that is read with all its subfolders. Changes are picked up while
    /// running; a bad change is refused as a whole and the last good configuration stays. Replace
    /// a file by renaming a new one over it: half a list can look like a shorter one.
    #[arg(long, value_name = "FILE-or-FOLDER")]
    pub config: PathBuf,
    /// Time between two looks at the configuration. A change counts once two looks in a row saw the same.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = timeout)]
    pub config_interval: Duration,
    /// Address to serve on: /v1/stream, /v1/endpoints, /v3/discovery:endpoints, :clusters, /metrics,
    /// /healthz, /readyz and a page at /.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7080")]
    pub listen: SocketAddr,
    /// Folder for POOL.json, the hosts of Envoy's cluster (EDS by file), and clusters.json, the
    /// clusters of several InferencePools (CDS by file), each with hosts in a NAMESPACE.NAME.json.
    /// Envoy must see it by the same path. Written whole before anything is served. Leave out if
    /// Envoy asks over HTTP (REST xDS).
    #[arg(long, value_name = "FOLDER")]
    pub eds_dir: Option<PathBuf>,
    /// Name of Envoy's cluster of all endpoints: that of the only InferencePool, too.
    #[arg(long, default_value = "default", value_parser = pool)]
    pub pool: String,
    /// Shortest time between two scrapes of an endpoint, at least 50ms. It grows to 20 times what
    /// a scrape takes.
    #[arg(long, default_value = "50ms", value_parser = duration)]
    pub scrape_interval: Duration,
    /// Longest wait for an endpoint's answer.
    #[arg(long, default_value = "1s", value_parser = timeout)]
    pub scrape_timeout: Duration,
    /// Scrapes without any answer in a row that take an endpoint out. (A refused connection does
    /// so at once.)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub failed_scrapes: u32,
    /// Age from which the signals of an endpoint count as unknown.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub stale_after: Duration,
    /// Time between giving Envoy a new host and telling the filter to use it.
    #[arg(long, default_value = "500ms", value_parser = duration)]
    pub eds_settle: Duration,
    /// Time that a removed host stays in Envoy's cluster after the filter was told.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub eds_linger: Duration,
    /// File of the usage ledger (SQLite), one row for each finished request that filters tell
    /// [default: usage.sqlite in $STATE_DIRECTORY, in $XDG_STATE_HOME/warmroute or in
    /// ~/.local/state/warmroute, made with the first record]
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Keep no ledger: requests are counted in /metrics only.
    #[arg(long, conflicts_with = "ledger")]
    pub no_ledger: bool,
    /// Age from which the ledger's records are removed.
    #[arg(long, default_value = "90d", value_parser = days)]
    pub ledger_keep: Duration,
    /// What to log, as JSON lines on standard error: error, warn, info, debug, trace.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub log_level: tracing::Level,
}

impl RunArgs {
    /// As the library takes it. `variable` reads the environment.
    #[must_use]
    pub fn options(self, variable: impl Fn(&str) -> Option<String>) -> Options {
        let ledger = ledger::Settings {
            named: self.ledger.is_some(),
            file: if self.no_ledger {
                None
            } else {
                self.ledger.or_else(|| place::usual_file(variable))
            },
            keep: self.ledger_keep,
            look_every: place::LOOK_EVERY,
        };
        let limits = Limits { failed_scrapes: self.failed_scrapes, stale_after: self.stale_after };
        Options {
            config: self.config,
            look_every: self.config_interval,
            connections: connections::Limits::default(),
            ledger,
            fleet: fleet::Settings {
                pool: self.pool,
                // Envoy reads it in a file, from wherever it was started.
                eds_dir: self.eds_dir.map(|folder| std::path::absolute(&folder).unwrap_or(folder)),
                settle: self.eds_settle,
                linger: self.eds_linger,
                scrape: scrape::Settings {
                    interval: self.scrape_interval,
                    timeout: self.scrape_timeout,
                    limits,
                },
            },
        }
    }
}

/// `250ms`, `1.5s`, `2m`: up to a day.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let parsed = units.iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        let seconds = number * scale;
        (0.0..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
    });
    parsed.ok_or_else(|| "give a number and a unit, like 250ms, 1.5s or 2m".to_owned())
}

/// `12h`, `90d`: an hour at least.
fn days(text: &str) -> Result<Duration, String> {
    let units = [("h", 3600), ("d", 86_400)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let seconds = text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(*seconds)?;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    });
    parsed.ok_or_else(|| "give whole hours or days, like 12h or 90d".to_owned())
}

/// A duration in which something can be done.
fn timeout(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|timeout| {
        if timeout.is_zero() { Err("give more than 0".to_owned()) } else { Ok(timeout) }
    })
}

/// A name that can be a file's and a cluster's.
fn pool(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let reserved = text.starts_with('.') || format!("{text}.json") == clusters::FILE;
    if !text.is_empty() && text.len() <= 128 && text.chars().all(fine) && !reserved {
        Ok(text.to_owned())
    } else {
        Err("use letters, digits, `-`, `_` and `.`, but not `clusters`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let cases = [
            ("50ms", Some(50)),
            ("1s", Some(1000)),
            ("1.5s", Some(1500)),
            ("2m", Some(120_000)),
            ("0ms", Some(0)),
            ("50", None),
            ("-1s", None),
            ("NaNs", None),
            ("1e9s", None),
            ("s", None),
            ("", None),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        }
        assert_eq!(timeout("1s"), Ok(Duration::from_secs(1)));
        assert!(timeout("0ms").is_err(), "it would take every endpoint out");
    }

    #[test]
    fn records_are_kept_for_hours_or_days() {
        assert_eq!(days("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(days("90d"), Ok(place::KEEP));
        for bad in ["", "d", "0d", "-1d", "90", "1.5d", "5m", "99999999d"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pool_is_a_plain_file_name() {
        for bad in ["", "../x", "a/b", ".hidden", "a b", "clusters"] {
            assert!(pool(bad).is_err(), "{bad}");
        }
        assert!(pool("llama-70b.v1").is_ok());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["warmroute-agent", "run", "--config", "x"]);
        let Command::Run(args) = cli.command else { panic!("run") };
        assert_eq!(args.listen.to_string(), "127.0.0.1:7080");
        let options = args.options(|name| (name == "HOME").then(|| "/h".to_owned()));
        assert_eq!(
            options.ledger,
            ledger::Settings {
                file: Some("/h/.local/state/warmroute/usage.sqlite".into()),
                ..ledger::Settings::off()
            },
        );
        assert_eq!(options.fleet.settle, Duration::from_millis(500));
    }
}
