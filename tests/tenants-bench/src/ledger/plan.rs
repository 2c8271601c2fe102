//! What is sent: mixed requests of several tenants, models and APIs.

use e2e::MODEL;
use e2e::prompts::fresh_text;
use serde_json::{Value, json};

/// Tenants.
pub const TENANTS: [&str; 4] = ["t0", "t1", "t2", "t3"];
/// Models beside the usual one: a second name of it, and an adapter.
pub const OTHER_MODELS: [&str; 2] = ["llama-mini", "lora-a"];

/// Tokens of an answer that somebody waits for.
const REPLY: std::ops::Range<usize> = 1..5;
/// Tokens of an answer that nobody waits for: far more than are seen.
const LONG_REPLY: usize = 60;

/// An API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
}

/// When the client hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It does not.
    Never,
    /// After so many pieces of the stream.
    After(usize),
    /// Before there is an answer.
    Early,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// `x-request-id`.
    pub id: String,
    /// Whose it is.
    pub tenant: &'static str,
    /// The model that it asks for.
    pub model: &'static str,
    /// Path.
    pub path: &'static str,
    /// Whether its answer is a stream.
    pub stream: bool,
    /// Body.
    pub body: String,
    /// When the client hangs up.
    pub cut: Cut,
}

/// `count` requests. Of the middle eight tenths `resets` hang up in the middle of their answer, and a tenth as many
/// before it.
#[must_use]
pub fn plan(count: usize, resets: usize, random: &mut fastrand::Rng) -> Vec<Call> {
    let shared: Vec<String> = (0..40).map(|_| fresh_text(600)).collect();
    let mut middle: Vec<usize> = (count / 10..count * 9 / 10).collect();
    random.shuffle(&mut middle);
    let mut cuts = vec![Cut::Never; count];
    for (place, at) in middle.into_iter().enumerate().take(resets + resets / 10) {
        cuts[at] = if place < resets { Cut::After(random.usize(1..5)) } else { Cut::Early };
    }
    cuts.into_iter().enumerate().map(|(at, cut)| call(at, cut, &shared, random)).collect()
}

fn call(at: usize, cut: Cut, shared: &[String], random: &mut fastrand::Rng) -> Call {
    // What is cut is a stream of which the engine tells its usage on the way.
    let api = match random.usize(0..if cut == Cut::Never { 10 } else { 9 }) {
        0..5 => Api::Chat,
        5..7 => Api::Completion,
        7..9 => Api::Messages,
        _ => Api::Responses,
    };
    let stream = cut != Cut::Never || random.u8(0..10) < 6;
    let model = match random.u8(0..4) {
        0 => OTHER_MODELS[0],
        1 => OTHER_MODELS[1],
        _ => MODEL,
    };
    // A third begins as others do, so that engines have some of it in their caches.
    let mut text = match random.usize(0..shared.len() * 3) {
        one if one < shared.len() => shared[one].clone(),
        _ => String::new(),
    };
    text.push_str(&fresh_text(random.usize(20..400)));
    let reply = if cut == Cut::Never { random.usize(REPLY) } else { LONG_REPLY };
    let (path, mut body) = body(api, model, &text);
    body["sim_reply_tokens"] = reply.into();
    if stream {
        body["stream"] = true.into();
        let options = stream_options(random.u8(0..4));
        if matches!(api, Api::Chat | Api::Completion) && !options.is_null() {
            body["stream_options"] = options;
        }
    }
    let tenant = TENANTS[random.usize(0..TENANTS.len())];
    Call { id: format!("bench-{at}"), tenant, model, path, stream, body: body.to_string(), cut }
}

fn body(api: Api, model: &str, text: &str) -> (&'static str, Value) {
    let messages = json!([{"role": "user", "content": text}]);
    let most = LONG_REPLY + 1;
    match api {
        Api::Chat => (
            "/v1/chat/completions",
            json!({"model": model, "max_tokens": most, "messages": messages}),
        ),
        Api::Completion => {
            ("/v1/completions", json!({"model": model, "max_tokens": most, "prompt": text}))
        }
        Api::Messages => {
            ("/v1/messages", json!({"model": model, "max_tokens": most, "messages": messages}))
        }
        Api::Responses => {
            ("/v1/responses", json!({"model": model, "max_output_tokens": most, "input": text}))
        }
    }
}

fn stream_options(kind: u8) -> Value {
    match kind {
        0 => json!(null),
        1 => json!({"include_usage": false}),
        2 => json!({"include_usage": true}),
        _ => json!({"include_usage": true, "continuous_usage_stats": true}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_streams_in_the_middle() {
        let calls = plan(2_000, 100, &mut fastrand::Rng::with_seed(1));
        let at = |wanted: fn(&Cut) -> bool| -> Vec<usize> {
            let cut = |(at, call): (usize, &Call)| wanted(&call.cut).then_some(at);
            calls.iter().enumerate().filter_map(cut).collect()
        };
        let (after, early) = (at(|cut| matches!(cut, Cut::After(_))), at(|cut| *cut == Cut::Early));
        assert_eq!((calls.len(), after.len(), early.len()), (2_000, 100, 10));
        for index in after.iter().chain(&early) {
            assert!((200..1_800).contains(index), "{index}");
            assert!(calls[*index].stream && calls[*index].path != "/v1/responses");
        }
        for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"] {
            for stream in [true, false] {
                let some = calls.iter().any(|call| call.path == path && call.stream == stream);
                assert!(some, "{path} {stream}");
            }
        }
    }
}
