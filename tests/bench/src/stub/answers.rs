//! What an engine answers, composed once.

use std::fmt::Write as _;

use crate::workload::{LONG_ANSWER, MODEL, SHORT_ANSWER};

/// Searches a body for what decides about its answer, however it is cut.
#[derive(Debug, Default)]
pub(super) struct Wish {
    stream: bool,
    long: bool,
    usage: bool,
    carried: Vec<u8>,
}

const NEEDLES: [&[u8]; 3] = [b"\"stream\":true", b"\"max_tokens\":200", b"\"include_usage\":true"];
/// Bytes kept of each piece, so that no needle is lost between two.
const CARRIED: usize = 20;

impl Wish {
    /// Takes the next bytes of the body.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let seam = bytes.len().min(CARRIED);
        self.carried.extend_from_slice(bytes.get(..seam).unwrap_or_default());
        let carried = std::mem::take(&mut self.carried);
        self.search(&carried);
        self.search(bytes);
        let seen = if bytes.len() < CARRIED { &carried } else { bytes };
        self.carried = seen.get(seen.len().saturating_sub(CARRIED)..).unwrap_or_default().to_vec();
    }

    fn search(&mut self, bytes: &[u8]) {
        let [stream, long, usage] =
            NEEDLES.map(|needle| memchr::memmem::find(bytes, needle).is_some());
        self.stream |= stream;
        self.long |= long;
        self.usage |= usage;
    }
}

/// An answer to a chat.
pub(super) enum Answer<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// A head, then chunks, one a millisecond if `paced`.
    Chunks { head: &'a [u8], chunks: Vec<&'a [u8]>, paced: bool },
}

/// All answers.
#[derive(Debug)]
pub(super) struct Answers {
    whole: Vec<u8>,
    head: Vec<u8>,
    chunk: Vec<u8>,
    usage: Vec<u8>,
    end: Vec<u8>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let common = format!("\"id\":\"chatcmpl-0\",\"created\":1,\"model\":\"{MODEL}\"");
        let usage =
            "\"usage\":{\"prompt_tokens\":5000,\"total_tokens\":5008,\"completion_tokens\":8}";
        let whole = format!(
            "{{{common},\"object\":\"chat.completion\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\
             \"content\":\"one two three\"}},\"finish_reason\":\"length\"}}],{usage}}}"
        );
        let event = |rest: &str| {
            chunk(&format!("data: {{{common},\"object\":\"chat.completion.chunk\",{rest}}}\n\n"))
        };
        Self {
            whole: response("application/json", &whole),
            head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                    transfer-encoding: chunked\r\n\r\n"
                .to_vec(),
            chunk: event(
                "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]",
            ),
            usage: event(&format!("\"choices\":[],{usage}")),
            end: [chunk("data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat(),
        }
    }

    /// The answer that was wished for.
    pub(super) fn to(&self, wish: &Wish) -> Answer<'_> {
        if !wish.stream {
            return Answer::Whole(&self.whole);
        }
        let count = if wish.long { LONG_ANSWER } else { SHORT_ANSWER };
        let mut chunks = vec![self.chunk.as_slice(); count];
        chunks.extend(wish.usage.then_some(self.usage.as_slice()));
        chunks.push(&self.end);
        Answer::Chunks { head: &self.head, chunks, paced: wish.long }
    }
}

/// A whole answer of status 200.
pub(super) fn response(kind: &str, body: &str) -> Vec<u8> {
    let mut out = String::with_capacity(body.len() + 128);
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("writing to a string cannot fail");
    out.into_bytes()
}

fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(body: &str, piece: usize) -> (bool, bool, bool) {
        let mut wish = Wish::default();
        body.as_bytes().chunks(piece).for_each(|piece| wish.feed(piece));
        (wish.stream, wish.long, wish.usage)
    }

    #[test]
    fn wishes_are_found_however_the_body_is_cut() {
        let body = r#"{"model":"m","max_tokens":200,"x":1,"stream":true,"stream_options":{"include_usage":true}}"#;
        for piece in 1..=body.len() {
            assert_eq!(wished(body, piece), (true, true, true), "{piece}");
            assert_eq!(wished(r#"{"max_tokens":8,"stream":false}"#, piece), (false, false, false));
        }
    }

    #[test]
    fn streams_have_the_chunks_wished_for() {
        let answers = Answers::new();
        let count = |stream, long, usage| match answers.to(&Wish {
            stream,
            long,
            usage,
            ..Wish::default()
        }) {
            Answer::Whole(_) => None,
            Answer::Chunks { chunks, .. } => Some(chunks.len()),
        };
        assert_eq!(count(false, true, true), None);
        assert_eq!(count(true, false, false), Some(SHORT_ANSWER + 1));
        assert_eq!(count(true, true, true), Some(LONG_ANSWER + 2));
    }
}
