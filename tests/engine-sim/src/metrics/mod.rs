//! `/metrics` in the exposition of vLLM 0.32 (captured in `tests/fixtures`), and the signals of other engines.

mod exposition;
pub mod families;
pub mod format;
pub mod http;
pub mod loras;

pub use exposition::{Exposition, Label};
