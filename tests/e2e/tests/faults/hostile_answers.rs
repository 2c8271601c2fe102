//! Answers of engines meant to upset the filter: they pass or are cut off by Envoy, and cost no VM.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use e2e::client::CHAT;
use e2e::raw_client::RawClient;
use e2e::scripted_engine::ScriptedEngine;
use e2e::stack::PATIENCE;
use e2e::{Endpoint, Setup, Stack};

const ASK: &[u8] =
    br#"{"model":"llama-70b","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// A whole answer of status 200 with this type and body, which ends with the connection.
fn answer(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn json(body: impl AsRef<[u8]>) -> Vec<u8> {
    answer("application/json", body.as_ref())
}

fn events(body: impl AsRef<[u8]>) -> Vec<u8> {
    answer("text/event-stream", body.as_ref())
}

fn usage(usage: &str) -> String {
    format!(r#"{{"choices":[],"usage":{usage}}}"#)
}

/// Usage that no engine should send.
const USAGES: [&str; 12] = [
    "null",
    "[]",
    "7",
    r#""many""#,
    r#"{"prompt_tokens":-1}"#,
    r#"{"prompt_tokens":1e400}"#,
    r#"{"prompt_tokens":99999999999999999999999999}"#,
    r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}"#,
    r#"{"prompt_tokens":4294967296}"#,
    r#"{"prompt_tokens":1.5}"#,
    r#"{"prompt_tokens":{"a":[]},"prompt_tokens_details":"x"}"#,
    r#"{"prompt_tokens_details":{"cached_tokens":[]},"prompt_tokens_details":null}"#,
];

fn answers() -> Vec<(String, Vec<u8>)> {
    let named = |what: &str, bytes: Vec<u8>| (what.to_owned(), bytes);
    let head =
        |line: &[u8]| [b"HTTP/1.1 200 OK\r\n", line, b"\r\nconnection: close\r\n\r\n{}"].concat();
    let mut all = vec![
        named("nothing", Vec::new()),
        named("no HTTP", b"hello\r\n\r\n".to_vec()),
        named("an odd status", b"HTTP/1.1 999 Odd\r\nconnection: close\r\n\r\n".to_vec()),
        named("no content", b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_vec()),
        named(
            "a length that is too long",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}".to_vec(),
        ),
        named(
            "a bad chunk",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        ),
        named("hints first", [b"HTTP/1.1 103 Early\r\n\r\n".as_slice(), &json("{}")].concat()),
        named("a type that is no UTF-8", head(b"content-type: \xff\xfe")),
        named("an empty type", head(b"content-type:")),
        named("an encoding that is no UTF-8", head(b"content-encoding: \xff")),
        named("an encoding of ours not", head(b"content-encoding: gzip")),
        named("attempts of its own", head(b"x-envoy-attempt-count: 99999999999")),
        named("attempts that are no number", head(b"x-envoy-attempt-count: \xff")),
        named("our record's name", head(b"x-warmroute-endpoint: 1.2.3.4:5")),
        named("50 KB of header", head(&[b"x-a: ".as_slice(), &[b'a'; 50_000]].concat())),
        named("an array", json("[]")),
        named("a number", json("7")),
        named("a cut object", json(r#"{"choices":[{"message":{"content":"#)),
        named("zero bytes", json(vec![0; 100_000])),
        named("10,000 arrays", json("[".repeat(10_000))),
        named("4 MB of {\"a\":", json("{\"a\":".repeat(800_000))),
        named("a string of 4 MB", json(format!("{{\"usage\":\"{}\"}}", "a".repeat(4 << 20)))),
        named(
            "an event of 4 MB without an end",
            events("data: ".to_owned() + &"a".repeat(4 << 20)),
        ),
        named(
            "an object of 4 MB in an event",
            events("data: ".to_owned() + &"{\"a\":".repeat(800_000)),
        ),
        named("a field's name of 4 MB", events("d".repeat(4 << 20))),
        named("4 MB of line ends", events("\n".repeat(4 << 20))),
        named("4 MB of mixed line ends", events("\r\n\r\r\n\n".repeat(600_000))),
        named("200,000 empty events", events("data:\n\n".repeat(200_000))),
        named("200,000 lines of one event", events("data: {\n".repeat(200_000))),
        named("zero bytes as events", events(vec![0; 100_000])),
        named(
            "invalid UTF-8",
            events(b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xc0\"}}]}\n\n"),
        ),
        named(
            "odd choices",
            events(
                "data: {\"choices\":null}\n\ndata: {\"choices\":{}}\n\ndata: {\"choices\":[[],1,null]}\n\n",
            ),
        ),
        named(
            "an odd error",
            events("data: {\"error\":null}\n\ndata: {\"error\":[]}\n\ndata: {\"error\":7}\n\n"),
        ),
        named("the end at once, twice", events("data: [DONE]\n\ndata: [DONE]\n\n")),
        named(
            "more after the end",
            events("data: [DONE]\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"),
        ),
    ];
    for odd in USAGES {
        all.push((format!("usage {odd}"), json(usage(odd))));
        all.push((format!("usage {odd} in an event"), events(format!("data: {}\n\n", usage(odd)))));
    }
    all
}

async fn ask(listen: SocketAddr, id: &str) -> Result<()> {
    let mut client = RawClient::connect(listen).await?;
    client.post(CHAT, id, &[], ASK).await?;
    client.head().await.context("no answer at all")?;
    // Envoy may well cut it off.
    let _ = client.rest().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_answers_cost_no_vm() -> Result<()> {
    let engine = ScriptedEngine::start().await?;
    let mut setup = Setup::new(0, 1);
    setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
    let stack = Stack::start(setup).await?;
    for (number, (what, bytes)) in answers().into_iter().enumerate() {
        let id = format!("hostile-{number}");
        let mut served = engine.expect(&id);
        let asked = ask(stack.listen(), &id);
        let answered = async {
            served.arrived().await.context("the engine got no request")?;
            served.send(bytes);
            served.close();
            anyhow::Ok(())
        };
        let both = async { tokio::try_join!(asked, answered) };
        tokio::time::timeout(PATIENCE, both).await.map_err(Into::into).flatten().context(what)?;
    }
    crate::hostile_requests::unharmed(&stack).await
}
