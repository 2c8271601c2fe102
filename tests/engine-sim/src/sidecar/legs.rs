//! The two legs of a request whose prompt is computed elsewhere, as llm-d's `nixlv2` connector writes them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::api::transfer;

/// Paths whose requests have two legs; others are passed on as they are.
const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// A request body whose values are passed on as they came.
pub struct Legs<'a> {
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> Legs<'a> {
    /// The legs of a request; `None` if it has only one.
    pub fn of(path: &str, body: &'a [u8]) -> Option<Self> {
        let fields = PATHS.contains(&path).then(|| serde_json::from_slice(body).ok())??;
        Some(Self { fields })
    }

    /// What the engine is sent that computes the prompt: one token, in one piece.
    pub fn prefill(&self) -> Vec<u8> {
        let one = [("max_tokens", "1"), ("max_completion_tokens", "1"), ("stream", "false")];
        let asked = transfer::asked().to_string();
        let mut own = BTreeMap::from(one);
        own.insert("kv_transfer_params", &asked);
        self.with(&own, &["stream_options", "min_tokens"])
    }

    /// What the engine is sent that decodes: everything as the client wrote it, and where the prompt's KV is.
    pub fn decode(&self, offer: &str) -> Vec<u8> {
        self.with(&BTreeMap::from([("kv_transfer_params", offer)]), &[])
    }

    /// The body with these raw values, and without those names.
    fn with(&self, own: &BTreeMap<&str, &str>, without: &[&str]) -> Vec<u8> {
        let mut fields: BTreeMap<&str, &RawValue> =
            self.fields.iter().map(|(name, raw)| (name.as_str(), *raw)).collect();
        fields.retain(|name, _| !without.contains(name));
        let own: Vec<_> = own
            .iter()
            .filter_map(|(name, text)| Some((*name, serde_json::from_str::<&RawValue>(text).ok()?)))
            .collect();
        fields.extend(own);
        serde_json::to_vec(&fields).unwrap_or_default()
    }
}

/// Where the KV is, of the answer to a prefill; raw JSON.
pub fn offer(answer: &[u8]) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(answer).ok()?;
    let params = fields.get("kv_transfer_params")?.get();
    (params != "null").then(|| params.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn each_leg_has_what_its_engine_needs_and_the_rest_as_sent() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":0.10,
            "stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":50}"#;
        let legs = Legs::of("/v1/chat/completions", body).unwrap();
        let prefill = legs.prefill();
        let shared = json!({
            "model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": 0.1,
        });
        let mut expected = shared.clone();
        expected.as_object_mut().unwrap().extend(
            json!({
                "max_tokens": 1, "max_completion_tokens": 1, "stream": false,
                "kv_transfer_params": transfer::asked(),
            })
            .as_object()
            .unwrap()
            .clone(),
        );
        assert_eq!(parsed(&prefill), expected);
        let decode = legs.decode("{\"remote_port\":7}");
        let text = String::from_utf8(decode.clone()).unwrap();
        assert!(text.contains("\"temperature\":0.10"), "numbers stay as they were written");
        let mut expected = shared;
        expected.as_object_mut().unwrap().extend(
            json!({
                "stream": true, "stream_options": {"include_usage": true},
                "max_completion_tokens": 50, "kv_transfer_params": {"remote_port": 7},
            })
            .as_object()
            .unwrap()
            .clone(),
        );
        assert_eq!(parsed(&decode), expected);
    }

    #[test]
    fn other_requests_have_one_leg() {
        for (path, body) in [
            ("/v1/messages", "{}"),
            ("/v1/completions", "no json"),
            ("/v1/completions", "[1]"),
            ("/metrics", ""),
        ] {
            assert!(Legs::of(path, body.as_bytes()).is_none(), "{path} {body}");
        }
    }

    #[test]
    fn an_answer_offers_its_kv_or_does_not() {
        let offered = br#"{"id":"x","kv_transfer_params":{"remote_port": 7}}"#;
        assert_eq!(offer(offered).as_deref(), Some("{\"remote_port\": 7}"));
        for answer in ["{}", "{\"kv_transfer_params\":null}", "", "[]"] {
            assert_eq!(offer(answer.as_bytes()), None, "{answer}");
        }
    }
}
