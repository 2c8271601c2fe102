//! Replays a slice of a Mooncake trace on simulated engines, with Envoy's own policies and with
//! Warmroute, and compares what they made of it.

mod figures;
mod page;
mod prompt;
mod proxy;
mod run;
mod slice;
mod table;
mod target;
mod trace;

use clap::ValueEnum;
use serde::Serialize;

use crate::processes::ProcessError;
use crate::workload::{BLOCK_TOKENS, WorkloadError};

pub use figures::{Bar, CaseReport, Report, Row};
pub use page::page;
pub use prompt::Writer;
pub use run::{Answer, REPLICAS, Setup};
pub use slice::{Request, Slice};
pub use table::{bar_table, table};
pub use target::Target;
pub use trace::{Row as TraceRow, TraceError, parse};

/// Why a replay could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A program did not do its part.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The prompts could not be written.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The trace could not be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The simulator did not encode a prompt.
    #[error("the simulator answered a prompt to encode with status {0:?}")]
    Encode(Option<u16>),
}

/// The engines' KV memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Twice what each would need if prompts were spread evenly and none shared anything.
    Ample,
    /// Together a quarter of the working set.
    Quarter,
}

impl Memory {
    /// All, in the order in which they are run.
    pub const ALL: [Self; 2] = [Self::Ample, Self::Quarter];

    /// As in the report and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ample => "ample",
            Self::Quarter => "quarter",
        }
    }

    /// KV blocks of each of so many engines.
    #[must_use]
    pub fn blocks(self, slice: &Slice, replicas: usize) -> usize {
        let tokens = match self {
            Self::Ample => slice.prompt_tokens * 2,
            Self::Quarter => slice.working_set_tokens / 4,
        };
        usize::try_from(tokens).unwrap_or(usize::MAX) / replicas.max(1) / BLOCK_TOKENS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_by_the_slice() {
        let slice =
            Slice { prompt_tokens: 128_000, working_set_tokens: 64_000, ..Slice::default() };
        assert_eq!(Memory::Ample.blocks(&slice, 8), 2_000);
        assert_eq!(Memory::Quarter.blocks(&slice, 8), 125);
        for memory in Memory::ALL {
            assert_eq!(Memory::from_str(memory.name(), false), Ok(memory));
        }
    }
}
