//! Reads a stream of server-sent events as far as the measurements need it.

use serde::Deserialize;

/// Longest line that is kept; an engine's events are far shorter.
const LONGEST_LINE: usize = 1 << 20;

/// What a stream of completion chunks has told so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// A chunk with content came.
    pub content: bool,
    /// Tokens of the prompt, by the last usage seen.
    pub prompt_tokens: u64,
    /// Of these, held by the engine on arrival.
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// An `error` object came.
    pub error: bool,
    /// `[DONE]` came: the stream is complete.
    pub done: bool,
}

/// Feeds on the bytes of a stream, cut anywhere.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    /// What the stream has told so far.
    pub facts: StreamFacts,
}

impl SseReader {
    /// Takes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.facts.take(head);
            } else {
                self.keep(head);
                let line = std::mem::take(&mut self.line);
                self.facts.take(&line);
            }
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() <= LONGEST_LINE {
            self.line.extend_from_slice(bytes);
        }
    }
}

impl StreamFacts {
    /// A unary answer: one JSON object.
    #[must_use]
    pub fn of_unary(body: &[u8]) -> Self {
        let mut facts = Self::default();
        facts.take_json(body);
        facts.done = facts.content && !facts.error;
        facts
    }

    fn take(&mut self, line: &[u8]) {
        let Some(payload) = line.strip_prefix(b"data:") else { return };
        let payload = payload.trim_ascii();
        if payload == b"[DONE]" {
            self.done = true;
            return;
        }
        // Once content came, only usage and errors are of interest: most chunks need no parsing.
        let telling = |needle: &[u8]| payload.windows(needle.len()).any(|window| window == needle);
        if !self.content || telling(b"\"usage\":{") || telling(b"\"error\"") {
            self.take_json(payload);
        }
    }

    fn take_json(&mut self, payload: &[u8]) {
        let Ok(chunk) = serde_json::from_slice::<Chunk>(payload) else { return };
        self.error |= chunk.error.is_some();
        self.content |= chunk.choices.iter().any(Choice::has_content);
        if let Some(usage) = chunk.usage {
            self.prompt_tokens = usage.prompt_tokens;
            self.completion_tokens = usage.completion_tokens;
            self.cached_tokens =
                usage.prompt_tokens_details.map_or(0, |details| details.cached_tokens);
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Text>,
    message: Option<Text>,
    text: Option<String>,
}

impl Choice {
    fn has_content(&self) -> bool {
        let parts = [&self.delta, &self.message];
        let chat = parts.into_iter().flatten().filter_map(|part| part.content.as_deref());
        chat.chain(self.text.as_deref()).any(|text| !text.is_empty())
    }
}

#[derive(Deserialize)]
struct Text {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = concat!(
        ": keep-alive\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" you\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,",
        "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
        "data:[DONE]\n\n",
    );

    fn read(pieces: &[&[u8]]) -> StreamFacts {
        let mut reader = SseReader::default();
        for piece in pieces {
            reader.feed(piece);
        }
        reader.facts
    }

    #[test]
    fn any_split_tells_the_same() {
        let whole = StreamFacts {
            content: true,
            prompt_tokens: 9,
            cached_tokens: 4,
            completion_tokens: 2,
            error: false,
            done: true,
        };
        for cut in 0..=STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(cut);
            assert_eq!(read(&[head, tail]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn the_first_chunk_with_content_counts_and_not_the_role() {
        let after_role = STREAM.find("data: {\"choices\":[{\"delta\":{\"content\":\"Hi").unwrap();
        assert!(!read(&[&STREAM.as_bytes()[..after_role]]).content);
    }

    #[test]
    fn errors_and_cut_streams_are_told_from_complete_ones() {
        let cases: &[(&str, &str, bool, bool)] = &[
            (
                "an error, then the end",
                "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n",
                true,
                true,
            ),
            ("cut", "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n", false, false),
            ("no JSON", "data: {{{\n\ndata: [DONE]\n\n", false, true),
        ];
        for (what, stream, error, done) in cases {
            let facts = read(&[stream.as_bytes()]);
            assert_eq!((facts.error, facts.done), (*error, *done), "{what}");
        }
    }

    #[test]
    fn unary_answers_count_too() {
        let body = br#"{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":3}}"#;
        let facts = StreamFacts::of_unary(body);
        assert_eq!((facts.content, facts.done, facts.prompt_tokens), (true, true, 3));
        assert!(!StreamFacts::of_unary(b"{\"error\":{}}").done);
    }

    proptest! {
        #[test]
        fn no_bytes_can_upset_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[&bytes, b"\n"]);
        }
    }
}
