//! JSON as Python's `json` module reads and writes it.
//!
//! Why not serde_json: Python tells `1` from `1.0`, knows `NaN`, keeps integers of any size and the order of
//! keys, and `serde_json`'s switches for the last two would change every other user of it in the module.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use read::{JsonFault, loads};
pub(crate) use write::{Style, dumps};
