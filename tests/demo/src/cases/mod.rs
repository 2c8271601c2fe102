//! The cases of the demo, and how one is measured.

mod definition;
mod measure;

pub use definition::{Case, Occupied, all};
pub use measure::{CaseError, measure};
