//! Bodies that are no chat and no completion: 400, by the filter itself; compressed ones: 415.

use anyhow::Result;
use e2e::client::{CHAT, Request, send};
use e2e::h2_client::{End, H2Connection};
use e2e::prompts::chat;
use e2e::{Setup, Stack};
use serde_json::{Value, json};
use warmroute_demo::processes;

use super::error_of;

const COMPLETIONS: &str = "/v1/completions";

/// In bodies and credentials: no log may have it, at any level.
const SECRET: &str = "s3cr3t-d0-n0t-l0g";

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Path, body, and the field that is to blame.
fn bad_bodies() -> Vec<(&'static str, &'static str, Vec<u8>, Value)> {
    let whole = chat(SECRET, 1).to_string();
    let with_model = |rest: &str| format!(r#"{{"model":"m",{rest}}}"#).into_bytes();
    let deep = |open: &str| with_model(&format!(r#""x":{}"#, open.repeat(10_000)));
    let none = || Value::Null;
    vec![
        ("nothing", CHAT, vec![], none()),
        ("only spaces", CHAT, b"  \r\n\t ".to_vec(), none()),
        ("cut short", CHAT, br#"{"model":"#.to_vec(), none()),
        ("cut inside the secret", CHAT, whole.as_bytes()[..whole.len() - 3].to_vec(), none()),
        ("more behind it", CHAT, format!("{whole}}}").into_bytes(), none()),
        ("an array", CHAT, b"[]".to_vec(), none()),
        ("null", CHAT, b"null".to_vec(), none()),
        ("a string", CHAT, br#""x""#.to_vec(), none()),
        ("plain text", CHAT, SECRET.into(), none()),
        ("a form", CHAT, b"model=m&messages=x".to_vec(), none()),
        ("a byte order mark", CHAT, format!("\u{feff}{whole}").into_bytes(), none()),
        ("UTF-16", CHAT, utf16(&whole), none()),
        (
            "no UTF-8",
            CHAT,
            with_model("\"messages\":[{\"role\":\"user\",\"content\":\"\u{1}\"}]"),
            none(),
        ),
        ("Latin-1", CHAT, b"{\"model\":\"caf\xe9\",\"messages\":[]}".to_vec(), none()),
        (
            "a lone surrogate",
            CHAT,
            with_model(r#""messages":[{"role":"user","content":"\ud800"}]"#),
            none(),
        ),
        (
            "NaN",
            CHAT,
            with_model(r#""temperature":NaN,"messages":[{"role":"user","content":"x"}]"#),
            none(),
        ),
        ("single quotes", CHAT, b"{'model':'m'}".to_vec(), none()),
        ("deep arrays", CHAT, deep("["), none()),
        ("deep objects", CHAT, deep(r#"{"a":"#), none()),
        (
            "no model",
            CHAT,
            br#"{"messages":[{"role":"user","content":"x"}]}"#.to_vec(),
            json!("model"),
        ),
        (
            "a model that is a number",
            CHAT,
            br#"{"model":1,"messages":[{"role":"user","content":"x"}]}"#.to_vec(),
            json!("model"),
        ),
        (
            "MODEL is not model",
            CHAT,
            br#"{"MODEL":"m","messages":[{"role":"user","content":"x"}]}"#.to_vec(),
            json!("model"),
        ),
        ("no messages", CHAT, br#"{"model":"m"}"#.to_vec(), json!("messages")),
        ("no message", CHAT, with_model(r#""messages":[]"#), json!("messages")),
        ("messages that are a string", CHAT, with_model(r#""messages":"x""#), json!("messages")),
        ("a message that is a string", CHAT, with_model(r#""messages":["x"]"#), json!("messages")),
        ("nothing", COMPLETIONS, vec![], none()),
        ("no model", COMPLETIONS, br#"{"prompt":"x"}"#.to_vec(), json!("model")),
        ("no prompt", COMPLETIONS, br#"{"model":"m"}"#.to_vec(), json!("prompt")),
        ("a prompt that is an object", COMPLETIONS, with_model(r#""prompt":{}"#), json!("prompt")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_refused_by_name_and_no_log_repeats_them() -> Result<()> {
    let stack = Stack::start(Setup::new(1, 2)).await?;
    for level in ["info", "trace"] {
        processes::post(stack.envoy.admin, &format!("/logging?wasm={level}"), &json!({})).await?;
        for (n, (name, path, body, param)) in bad_bodies().into_iter().enumerate() {
            let id = format!("{level}-{n}");
            let request = Request::post(path, body.into())
                .header("content-type", "application/json")
                .header("authorization", &format!("Bearer {SECRET}"))
                .id(&id);
            let answer = send(stack.listen(), &request).await?;
            let error = error_of(name, &answer, 400);
            assert_eq!(error["param"], param, "{name}: {error}");
            assert!(!answer.text().contains(SECRET), "{name}: {error}");
        }
        let log = stack.access(&format!("{level}-0")).await?;
        assert_eq!((log.status, log.cause.as_deref()), (400, Some("warmroute_bad_request")));
        assert_eq!(log.details.as_deref(), Some("warmroute_bad_request"));
        assert_eq!((log.endpoint, log.upstream), (None, None));
    }
    assert_eq!(stack.engines().await?[0].arrived, 0);
    assert_eq!(stack.stat("wasm.warmroute.vm_reload_success").await?, 0);
    // A good one with the same secret passes, at the chattiest level.
    let good = Request::chat(&chat(SECRET, 1)).header("authorization", SECRET).id("good");
    assert_eq!(send(stack.listen(), &good).await?.status, 200);
    stack.access("good").await?;
    for file in std::fs::read_dir(stack.dir())? {
        let path = file?.path();
        if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            assert!(!text.contains(SECRET), "the secret is in {}", path.display());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_refused_with_their_encoding() -> Result<()> {
    let stack = Stack::start(Setup::new(1, 1)).await?;
    let body = e2e::prompts::body(&chat("Hello", 1));
    let with =
        |encoding: &str| Request::post(CHAT, body.clone()).header("content-encoding", encoding);
    for encoding in ["gzip", "zstd", "br", "deflate", "gzip, br"] {
        let answer = send(stack.listen(), &with(encoding)).await?;
        let error = error_of(encoding, &answer, 415);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("'{encoding}'")), "{message}");
    }
    // Over HTTP/2 with more than is sent before the answer could come.
    let (large, frame) = (vec![0; 20 << 20], 16_384);
    let frames = large.chunks(frame).map(|frame| frame.to_vec().into()).collect();
    let headers = [("content-encoding", "zstd")];
    let mut connection = H2Connection::open(stack.listen()).await?;
    let answer = connection.post(CHAT, &headers, frames, End::LastFrame).await?;
    error_of("HTTP/2", &answer, 415);
    assert_eq!(stack.engines().await?[0].arrived, 0);
    let identity =
        send(stack.listen(), &with("identity").header("content-type", "application/json")).await?;
    assert_eq!(identity.status, 200, "{}", identity.text());
    Ok(())
}
