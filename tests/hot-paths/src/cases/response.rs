//! An answer as it passes by.

use super::Work;
use crate::bodies::stream;
use warmroute_core::response::{End, ResponseReader};

/// Reads a stream of so many chunks.
pub(super) fn sse(chunks: usize) -> Work {
    let stream = stream(chunks);
    Box::new(move || {
        let mut reader = ResponseReader::for_headers(200, Some(b"text/event-stream"), None);
        for chunk in &stream {
            reader.feed(chunk);
        }
        reader.finish(End::Clean).facts.usage.completion_tokens.unwrap_or_default()
    })
}
