//! Bodies as clients send them, and answers as engines do. Plain English words, no two bodies' texts alike.

/// Text of about `bytes` bytes, with what JSON escapes: quotes and line breaks.
pub(crate) fn text(bytes: usize, seed: u64) -> String {
    const WORDS: [&str; 16] = [
        "the", "route", "that", "an", "engine", "keeps", "warm", "is", "shorter", "than", "it",
        "looks", "if", "nobody", "else", "asks",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(bytes.saturating_add(16));
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(WORDS[(state % 16) as usize]);
        // About as often as in source code and prose mixed.
        text.push_str(match state >> 56 {
            0..8 => ".\\n",
            8..12 => " \\\"so\\\" ",
            _ => " ",
        });
    }
    text
}

/// A chat of about `bytes` bytes: a system message and turns that alternate.
pub(crate) fn chat(bytes: usize, seed: u64) -> Vec<u8> {
    let turns = bytes.div_ceil(8 << 10);
    let each = bytes.saturating_sub(200) / (turns + 1);
    let mut body = format!(
        "{{\"model\":\"m\",\"stream\":true,\"max_tokens\":256,\"messages\":[{{\"role\":\"system\",\"content\":\"{}\"}}",
        text(each, seed)
    );
    for turn in 0..turns {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let said = text(each, seed + 1 + turn as u64);
        body.push_str(&format!(",{{\"role\":\"{role}\",\"content\":\"{said}\"}}"));
    }
    body.push_str("]}");
    body.into_bytes()
}

/// A streamed answer of `chunks` chunks, each as Envoy hands it over, and the last two events.
pub(crate) fn stream(chunks: usize) -> Vec<Vec<u8>> {
    let event = |delta: &str, finish: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-8f14e45fceea167a5a36dedd4bea2543\",\"object\":\"chat.completion.chunk\",\
             \"created\":1790000000,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\
             \"logprobs\":null,\"finish_reason\":{finish}}}]{usage}}}\n\n"
        )
        .into_bytes()
    };
    let mut all: Vec<_> =
        (0..chunks).map(|n| event(&format!("\"content\":\" word{n}\""), "null", "")).collect();
    let usage = ",\"usage\":{\"prompt_tokens\":100,\"total_tokens\":300,\"completion_tokens\":200}";
    all.push(event("", "\"stop\"", usage));
    all.push(b"data: [DONE]\n\n".to_vec());
    all
}
