//! Bodies, and what scanning them gives.

use super::*;

pub(in crate::request) fn scan_slices<'a>(
    path: PathClass,
    slices: impl IntoIterator<Item = &'a [u8]>,
) -> Result<RequestFacts, RequestError> {
    let mut scan = BodyScan::new(path, Scratch::default());
    for slice in slices {
        if let Err(error) = scan.feed(slice) {
            assert_eq!(scan.feed(b"{}"), Err(error), "an error stays");
            return Err(scan.finish().expect_err("an error stays"));
        }
    }
    scan.finish()
}

pub(super) fn chat(body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(PathClass::Chat, [body.as_bytes()])
}

pub(super) fn completion(body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(PathClass::Completions, [body.as_bytes()])
}

/// A chat with `messages`.
pub(super) fn chat_of(messages: &str) -> Result<RequestFacts, RequestError> {
    chat(&format!(r#"{{"model":"m","messages":{messages}}}"#))
}

/// A completion with `prompt`.
pub(super) fn completion_of(prompt: &str) -> Result<RequestFacts, RequestError> {
    completion(&format!(r#"{{"model":"m","prompt":{prompt}}}"#))
}

/// The approximate stream of one prompt.
pub(in crate::request) fn stream(facts: &RequestFacts, index: usize) -> Vec<u8> {
    let mut out = Vec::new();
    visit_prompt(facts, index, usize::MAX, &mut |piece| out.extend_from_slice(piece));
    out
}

/// Bytes of all its approximate streams.
pub(super) fn visited(facts: &RequestFacts) -> u64 {
    (0..facts.prompt_count()).map(|index| stream(facts, index).len() as u64).sum()
}

pub(super) const FULL_CHAT: &str = r#" { "x":[{"model":"no"}], "messages":[
    {"content":"Be \"brief\".\n","role":"system"},
    {"role":"user","name":"ann","content":[{"text":"see\u0020é😀","type":"text"},
        {"type":"image_url","image_url":{"detail":"low","url":"http://h/i.png"}}]},
    {"role":"assistant","content":null,"tool_calls":[ {"id":"c1", "content":"[]{}"} ],"reasoning_content":"hm"},
    {"role":"tool","tool_call_id":"c1","content":"42"}],
    "tools":[ {"type":"function","function":{"name":"f","b":1,"a":"<"}} ],
    "tool_choice":"auto", "documents":null, "chat_template_kwargs":{"k":[1]},
    "stream":true, "stream_options":{"include_usage":false,"continuous_usage_stats":true},
    "max_tokens":7, "max_completion_tokens":9, "n":2, "cache_salt":"s", "add_generation_prompt":true,
    "continue_final_message":false, "chat_template":"{{t}}", "\u006dodel":"ll\u0061ma" } "#;

pub(super) const FULL_COMPLETION: &str = r#"{"prompt":[[1,2,4294967295],[30]],"model":"m","max_tokens":16,
    "max_completion_tokens":1,"messages":7,"tools":[1],"stream":false,"stream_options":null}"#;
