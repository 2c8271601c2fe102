//! What a request asks for, read from its path and its body.
//!
//! ```text
//! path ── PathClass::of ──▶ BodyScan ── feed(slice)… ── finish ──▶ RequestFacts ──▶ digest_prompt | render_prompt
//!                               └──────── RequestError ──▶ LocalReply (OpenAI-shaped JSON)
//! ```
//! - [`path`]: which API a path names; [`parsers`]: by which parser it is read, if any;
//! - [`scan`]: one pass over the body, as it arrives, without a tree (`fields` names what it looks for);
//! - [`facts`]: the outcome, spans over reusable buffers ([`scratch`]);
//! - [`approximate`]: the bytes that stand for the prompt when nobody renders the template, with `tools`;
//!   `prompt_digest`: the same hashed as it comes, where nothing else is asked of the texts;
//! - [`render`]: the bytes that the engine's template makes of a chat;
//! - [`splice`]: the bytes changed on the way: model, `include_usage`; `conversation`: what turns have in common;
//! - `anthropic`: Anthropic's messages as the engine turns them into a chat;
//! - [`error`], [`reply`]: what is wrong with a body, and answers that the filter gives by itself.

mod anthropic;
pub mod approximate;
mod content;
mod conversation;
mod draft;
pub mod error;
pub mod facts;
mod fields;
mod kept;
mod messages;
pub mod parsers;
pub mod path;
mod prompt_digest;
mod prompts;
mod reader;
pub mod render;
pub mod reply;
pub mod scan;
pub mod scratch;
mod scratch_pool;
pub mod splice;
#[cfg(test)]
mod tests;
mod tools;
mod value;

pub use approximate::{InputLength, digest_prompt, visit_prompt};
pub use error::RequestError;
pub use facts::{
    ByteSpan, Captured, Content, Field, MediaKind, Message, Part, Prompt, RequestFacts,
    StreamOptions, TextSpan,
};
pub use parsers::{NoParser, ParserSet};
pub use path::PathClass;
pub use render::render_prompt;
pub use reply::LocalReply;
pub use scan::BodyScan;
pub use scratch::Scratch;
pub use scratch_pool::ScratchPool;
pub use splice::{Splice, spliced};
