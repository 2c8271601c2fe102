//! Answers on their way through: read, not touched, not held up.
#![cfg(feature = "e2e")]

/// A body that a real vLLM sent.
macro_rules! captured {
    ($name:literal) => {
        include_str!(concat!("../../../../filter/core/src/response/fixtures/", $name))
    };
}

mod bed;
mod cuts;
mod ends;
mod prompt_load;
mod unchanged;
mod usage;
