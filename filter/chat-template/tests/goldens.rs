//! What a real vLLM rendered for our conversations (`tests/goldens`), rendered here.
//!
//! The bodies go the filter's whole way: scanned, then rendered with the models' own templates, which
//! `make models` fetches.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use warmroute_chat_template::{Template, TemplateSource, normalize_nfc};
use warmroute_core::request::{BodyScan, PathClass, Scratch, render_prompt};

const LIMIT: usize = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A model as `make models` left it.
struct Model {
    template: Template,
    composes: bool,
}

fn model(name: &str) -> Model {
    let folder = root().join(".tools/models").join(name);
    let read = |file: &str| -> Value {
        let text = fs::read(folder.join(file)).expect("a model's files; run `make models`");
        serde_json::from_slice(&text).expect("JSON")
    };
    let config = read("tokenizer_config.json");
    let special_tokens = config.as_object().unwrap().iter().filter_map(|(name, value)| {
        let token = value.as_str().or_else(|| value.get("content")?.as_str())?;
        name.ends_with("_token").then(|| (name.clone(), token.to_owned()))
    });
    let source = TemplateSource {
        text: config["chat_template"].as_str().unwrap().to_owned(),
        special_tokens: special_tokens.collect(),
    };
    let composes = read("tokenizer.json")["normalizer"].to_string().contains("NFC");
    Model { template: Template::compile(&source).unwrap(), composes }
}

/// What vLLM answered: model → API → conversation → number of bytes and their hash, or "refused".
fn answers() -> BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>> {
    let text = fs::read(root().join("tests/goldens/answers.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn render(model: &Model, api: &str, name: &str) -> Result<Vec<u8>, String> {
    let path = root().join("tests/goldens").join(api).join(name).with_extension("json");
    let body = fs::read_to_string(path).unwrap().replacen('{', "{\"model\":\"m\",", 1);
    let class = if api == "chat" { PathClass::Chat } else { PathClass::Messages };
    let mut scan = BodyScan::new(class, Scratch::default());
    let facts =
        scan.feed(body.as_bytes()).and_then(|()| scan.finish()).map_err(|e| e.to_string())?;
    let mut prompt = Vec::new();
    render_prompt(&facts, &model.template, 0, LIMIT, &mut |piece| prompt.extend_from_slice(piece))
        .map_err(|error| error.to_string())?;
    Ok(if model.composes { normalize_nfc(&prompt).into_owned() } else { prompt })
}

/// Conversations that the engine renders and we do not, with the reason.
const APPROXIMATE: [(&str, &str); 2] = [
    (
        "assistant_tool_result",
        "the API gives tool results to users; vLLM would print Python's notation",
    ),
    ("tool_reference", "only templates that know deferred tools show them"),
];

/// Conversations that the engine refuses and we render, with the reason. The request fails there, so no prefix of it
/// is ever looked for.
const REFUSED_ELSEWHERE: [(&str, &str); 4] = [
    ("input_text_parts", "parts of the responses API: the filter takes them for text"),
    ("no_max_tokens", "a missing limit is for the engine to complain about"),
    ("null_user_content", "null and missing contents are one to the filter"),
    ("part_without_type", "the filter goes by the fields"),
];

/// Compares all answers to an API; at least `least` prompts must be equal, so that a lost capture shows.
fn check(api: &str, least: usize) {
    let mut faults = Vec::new();
    let (mut equal, mut refused, mut approximate) = (0, 0, 0);
    for (name, apis) in answers() {
        let model = model(&name);
        for (conversation, expected) in &apis[api] {
            let rendered = render(&model, api, conversation);
            let is_in = |list: &[(&str, &str)]| list.iter().any(|(name, _)| name == conversation);
            let (known, harmless) = (is_in(&APPROXIMATE), is_in(&REFUSED_ELSEWHERE));
            match (expected, &rendered) {
                (Value::String(_), Err(_)) => refused += 1,
                (Value::Object(_), Err(_)) if known => approximate += 1,
                (Value::Object(golden), Ok(prompt)) => {
                    let hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(prompt));
                    if golden["xxh3"] == *hash && golden["bytes"] == prompt.len() {
                        equal += 1;
                    } else {
                        let (ours, theirs) = (prompt.len(), &golden["bytes"]);
                        faults.push(format!("{name} {conversation}: {ours} bytes for {theirs}"));
                    }
                }
                (Value::String(_), Ok(_)) if harmless => refused += 1,
                (expected, Ok(_)) => {
                    faults
                        .push(format!("{name} {conversation}: rendered, but vLLM says {expected}"));
                }
                (_, Err(error)) => faults.push(format!("{name} {conversation}: {error}")),
            }
        }
    }
    let counts = format!("{equal} equal, {refused} refused, {approximate} approximate");
    assert!(faults.is_empty(), "{counts}, {} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(equal >= least, "{counts}");
}

#[test]
fn chats() {
    check("chat", 340);
}

#[test]
fn anthropic_messages() {
    check("messages", 85);
}
