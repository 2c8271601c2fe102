//! How fast the agent reads and indexes KV events: its own measurement, in a process of its own.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::BenchError;

/// Blocks in a second on one core, from the bytes of batches to what is told on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KvRate {
    /// Blocks of prompts, many to an event.
    pub prefill_blocks_per_s: f64,
    /// Blocks stored or removed, as many of each.
    pub churned_blocks_per_s: f64,
    /// Blocks of answers, each of which is encoded again.
    pub decoded_blocks_per_s: f64,
    /// Mean bytes of a token of its text.
    pub bytes_per_token: f64,
}

impl KvRate {
    /// Runs `program`, the agent's example `kv_index_bench`, and reads what it prints.
    ///
    /// # Errors
    /// When it does not run to its end, or prints something else.
    pub fn measure(program: &Path) -> Result<Self, BenchError> {
        let output = Command::new(program).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let rate = Self::read(&printed).filter(|_| output.status.success());
        rate.ok_or_else(|| BenchError::KvRate(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// One `name value` a line.
    fn read(printed: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = printed.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(other, _)| *other == name)?.1.parse().ok()
        };
        Some(Self {
            prefill_blocks_per_s: value("prefill_blocks_per_s")?,
            churned_blocks_per_s: value("churned_blocks_per_s")?,
            decoded_blocks_per_s: value("decoded_blocks_per_s")?,
            bytes_per_token: value("bytes_per_token")?,
        })
    }

    /// The figures for people.
    #[must_use]
    pub fn table(&self) -> String {
        let rows = [
            ("prefill", self.prefill_blocks_per_s),
            ("stored and removed", self.churned_blocks_per_s),
            ("decoded, each encoded again", self.decoded_blocks_per_s),
        ];
        let mut out = format!(
            "KV events decoded and indexed on one core, blocks of 16 tokens of {:.1} bytes\n",
            self.bytes_per_token
        );
        for (what, rate) in rows {
            out.push_str(&format!("  {what:<28} {rate:>9.0} blocks/s\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name_and_all_must_be_there() {
        let lines = [
            "bytes_per_token 2.72",
            "engine_blocks 2560000",
            "prefill_blocks_per_s 1931973",
            "churned_blocks_per_s 2727094",
            "decoded_blocks_per_s 49166",
        ];
        let rate = KvRate::read(&lines.join("\n")).unwrap();
        assert_eq!((rate.prefill_blocks_per_s, rate.bytes_per_token), (1_931_973.0, 2.72));
        assert!(
            rate.table().contains("decoded, each encoded again      49166 blocks/s"),
            "{}",
            rate.table()
        );
        assert_eq!(KvRate::read(&lines[..4].join("\n")), None);
        assert_eq!(KvRate::read(&lines.join("\n").replace("49166", "many")), None);
    }
}
