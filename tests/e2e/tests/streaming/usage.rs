//! Token counts, as a capture has them and as the access log does.

use e2e::access_log::Access;
use serde_json::Value;

/// Tokens of prompt, cached and answer, as the last usage of a captured stream has them.
pub(crate) fn usage_of(captured: &str) -> [Option<u64>; 3] {
    let mut chunks = captured.lines().filter_map(|line| {
        let chunk: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        chunk.get("usage").filter(|usage| usage.is_object()).cloned()
    });
    let usage = chunks.next_back().expect("a usage");
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    [
        count("/prompt_tokens"),
        count("/prompt_tokens_details/cached_tokens"),
        count("/completion_tokens"),
    ]
}

/// The same, as the filter read it.
pub(crate) fn usage_in(record: &Access) -> [Option<u64>; 3] {
    [record.prompt_tokens(), record.cached_tokens(), record.completion_tokens()]
}
