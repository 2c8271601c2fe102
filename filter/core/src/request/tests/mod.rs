//! Tables of bodies and what is read of them.

#[cfg(not(target_arch = "wasm32"))]
mod any_bytes;
mod apis;
mod approximate;
mod bodies;
mod conversation;
mod described;
mod digested;
mod fields;
mod inputs;
mod refused;
mod reservations;
mod splice;
mod whole;

pub(super) use bodies::{scan_slices, stream};
pub(super) use described::{content, describe};

use super::{
    BodyScan, Content, InputLength, Message, Part, PathClass, Prompt, RequestError, RequestFacts,
    Scratch, TextSpan, visit_prompt,
};
use bodies::{FULL_CHAT, FULL_COMPLETION, chat, chat_of, completion, completion_of, visited};
use described::prompt_of;
