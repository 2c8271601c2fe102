//! `/metrics` in the exposition of vLLM 0.32 (captured in `tests/fixtures`).

mod exposition;
pub mod families;
pub mod http;
pub mod loras;

pub use exposition::{Exposition, Label};
