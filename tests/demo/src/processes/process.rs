//! One child process: its logs, its readiness, its end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::ProcessError;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Which session a process belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// Ours: it ends with the terminal, or with Ctrl-C.
    #[default]
    Shared,
    /// One of its own, so that it can be left running.
    Own,
}

/// A started program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    left_running: bool,
}

impl Process {
    /// Starts `program`; its output goes to `<dir>/<name>.out`, its errors to `<dir>/<name>.log`.
    ///
    /// # Errors
    /// When a log cannot be created or the program cannot be started.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        dir: &Path,
        session: Session,
    ) -> Result<Self, ProcessError> {
        let create = |extension: &str| {
            let path = dir.join(format!("{name}.{extension}"));
            let file = File::create(&path).map_err(ProcessError::io("create", &path))?;
            Ok::<_, ProcessError>((path, file))
        };
        let (_, out) = create("out")?;
        let (log, err) = create("log")?;
        let mut command = match session {
            Session::Shared => Command::new(program),
            // `setsid` becomes the program, so the pid is the program's.
            Session::Own => {
                let mut command = Command::new("setsid");
                command.arg(program);
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(ProcessError::io("start", program))?;
        Ok(Self { name: name.to_owned(), child, log, left_running: false })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with its standard error.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The file with its standard output.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.log.with_extension("out")
    }

    /// Which process this is, for good.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            name: self.name.clone(),
            pid: self.pid(),
            started: started(self.pid()).unwrap_or(0),
        }
    }

    /// Lets it run on; returns what to write down to be able to end it from another process.
    #[must_use]
    pub fn leave_running(mut self) -> Record {
        self.left_running = true;
        self.record()
    }

    /// An error with the end of the log if the program has ended.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        Err(ProcessError::Ended { name: self.name.clone(), status, log: self.log.clone(), tail })
    }

    /// Waits until `condition` gives a value; ends early when the program does.
    ///
    /// # Errors
    /// When the program ends or the time is up.
    pub async fn wait_ready<T>(
        &mut self,
        limit: Duration,
        condition: impl AsyncFn() -> Option<T>,
    ) -> Result<T, ProcessError> {
        let start = Instant::now();
        loop {
            if let Some(value) = condition().await {
                return Ok(value);
            }
            self.check_alive()?;
            if start.elapsed() > limit {
                let logs = self.log.clone();
                return Err(ProcessError::Late {
                    what: format!("start of {}", self.name),
                    limit,
                    logs,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sends SIGTERM and waits for the end; SIGKILL if that takes too long.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        signal(self.pid(), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < GRACE {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(POLL);
        }
        self.kill()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        // An error here means that it has ended already.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.left_running {
            self.stop();
        }
    }
}

/// A process, as written to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Name of its logs.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// When it was started, in clock ticks since boot: a later process with the same id differs.
    pub started: u64,
}

impl Record {
    /// Whether this very process still runs.
    #[must_use]
    pub fn alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Ends this very process, if it still runs.
    pub fn stop(&self) {
        for (with, limit) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            if !self.alive() {
                return;
            }
            signal(self.pid, with);
            let start = Instant::now();
            while self.alive() && start.elapsed() < limit {
                std::thread::sleep(POLL);
            }
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // An error here means that it has ended already.
        let _ = kill_process(pid, signal);
    }
}

/// Start time of a running process; none for one that has ended, also if nobody has waited for it.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold spaces; the fields after it do not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Resident memory of a process, in MB.
#[must_use]
pub fn resident_mb(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok()? / 1024.0)
}

/// Waits until `condition` gives a value.
///
/// # Errors
/// When the time is up: `what` did not happen.
pub async fn wait_until<T>(
    what: &str,
    limit: Duration,
    logs: &Path,
    condition: impl AsyncFn() -> Option<T>,
) -> Result<T, ProcessError> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if start.elapsed() > limit {
            return Err(ProcessError::Late { what: what.to_owned(), limit, logs: logs.to_owned() });
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path, session: Session) -> Process {
        Process::start("sleeper", Path::new("sleep"), &["60".to_owned()], dir, session).unwrap()
    }

    #[test]
    fn a_process_ends_with_its_value_and_one_left_running_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path(), Session::Shared);
        let record = process.record();
        assert!(record.alive());
        drop(process);
        assert!(!record.alive());

        let record = sleeper(dir.path(), Session::Own).leave_running();
        assert!(record.alive());
        record.stop();
        assert!(!record.alive());
    }

    #[test]
    fn a_record_of_another_process_with_the_same_id_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path(), Session::Shared);
        let other = Record { started: process.record().started + 1, ..process.record() };
        assert!(!other.alive());
        other.stop();
        assert!(process.record().alive());
    }

    #[tokio::test]
    async fn a_program_that_ends_early_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let script = ["-c".to_owned(), "echo no such flag >&2; exit 3".to_owned()];
        let mut process =
            Process::start("sh", Path::new("sh"), &script, dir.path(), Session::Shared).unwrap();
        let never = async || None::<()>;
        let error = process.wait_ready(Duration::from_secs(30), never).await.unwrap_err();
        assert!(error.to_string().contains("no such flag"), "{error}");
    }
}
