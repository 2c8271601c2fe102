//! A rewritten model name in bodies that come in pieces, are tried twice, or end with trailers.

use crate::bed::Bed;
use crate::names::{REWRITE, pool};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use e2e::client::CHAT;
use e2e::h2_client::{End, H2Connection};
use e2e::raw_client::RawClient;
use e2e::scripted_engine::ScriptedEngine;
use e2e::{Endpoint, Setup, Stack};
use serde_json::json;

const LABEL: (&str, &str) = ("variant", "bf16");

/// What clients send, with their name for the model.
const ASK: &str =
    r#"{"model":"support","stream":true,"messages":[{"role":"user","content":"support"}]}"#;

/// What engines get.
const REWRITTEN: &str =
    r#"{"model":"llama-70b","stream":true,"messages":[{"role":"user","content":"support"}]}"#;

fn configured() -> String {
    pool("bf16", "bf16") + REWRITE
}

/// A stack whose engines are the test itself.
async fn scripted(engines: usize) -> Result<(Stack, Vec<ScriptedEngine>)> {
    let mut setup = Setup::new(0, 1).document(&configured());
    let mut all = Vec::new();
    for index in 0..engines {
        let engine = ScriptedEngine::start().await?;
        let endpoint = Endpoint::new(format!("scripted-{index}"), engine.address);
        let labels = vec![(LABEL.0.to_owned(), LABEL.1.to_owned())];
        setup.other_endpoints.push(Endpoint { labels, ..endpoint });
        all.push(engine);
    }
    Ok((Stack::start(setup).await?, all))
}

/// Three events. The name stands where it is to be restored, and where it is text, deeper down or only the
/// beginning of another name.
fn stream() -> String {
    let events = [
        r#"{"id":"c","object":"chat.completion.chunk","model":"llama-70b","choices":[{"index":0,"delta":{"content":"\"model\":\"llama-70b\""},"finish_reason":null}]}"#,
        r#"{"id":"c","model":"llama-70b-large","choices":[{"index":0,"delta":{"model":"llama-70b"},"finish_reason":"stop"}]}"#,
        r#"{"model":"llama-70b","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#,
    ];
    let mut text = String::new();
    for event in events {
        text.push_str(&format!("data: {event}\n\n"));
    }
    text + "data: [DONE]\n\n"
}

/// What the client is to get of [`stream`].
fn restored() -> String {
    let [before, between @ .., after] = &stream()
        .split(r#","object":"chat.completion.chunk","model":"llama-70b""#)
        .map(str::to_owned)
        .collect::<Vec<_>>()[..]
    else {
        panic!("the first event names the model")
    };
    assert!(between.is_empty(), "one event is the first");
    let last = after
        .replace(r#"{"model":"llama-70b","choices":[],"#, r#"{"model":"support","choices":[],"#);
    assert_ne!(&last, after, "the last event names the model");
    format!(r#"{before},"object":"chat.completion.chunk","model":"support"{last}"#)
}

/// The engine holds back all that follows the cut until the client has what precedes the name, so that every cut is
/// one that the filter meets.
#[tokio::test(flavor = "multi_thread")]
async fn the_clients_name_is_restored_wherever_a_stream_is_cut() -> Result<()> {
    let (stack, engines) = scripted(1).await?;
    let (text, expected) = (stream(), restored());
    let first = text.find(r#""model""#).context("the name")?;
    let other = text.find(r#""llama-70b-large""#).context("the other name")?;
    let cuts = (first - 2..first + 22).chain(other - 2..other + 18);
    let mut client = RawClient::connect(stack.listen()).await?;
    for cut in cuts {
        let id = format!("cut-{cut}");
        let mut served = engines[0].expect(&id);
        client.post(CHAT, &id, &[], ASK.as_bytes()).await?;
        let request = served.arrived().await.context("no request at the engine")?;
        assert_eq!(String::from_utf8_lossy(&request.body), REWRITTEN);
        served.send_stream_head();
        assert_eq!(client.head().await?.status, 200);
        served.send_chunk(&text.as_bytes()[..cut]);
        // Only a name is held back, and only while it may be the one.
        let free = if cut < other { cut.min(first) } else { other - 2 };
        let mut got = client.data_until(free).await?;
        served.send_chunk(&text.as_bytes()[cut..]);
        served.end_chunks();
        got.extend(client.rest().await?);
        assert_eq!(String::from_utf8_lossy(&got), expected, "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_try_gets_the_rewritten_body_too() -> Result<()> {
    let (stack, engines) = scripted(2).await?;
    let mut client = RawClient::connect(stack.listen()).await?;
    let [mut one, mut other] = [0, 1].map(|index: usize| engines[index].expect("twice"));
    client.post(CHAT, "twice", &[], ASK.as_bytes()).await?;
    // Whoever is picked first refuses.
    let (first, one_first) = tokio::select! {
        Some(request) = one.arrived() => (request, true),
        Some(request) = other.arrived() => (request, false),
        else => anyhow::bail!("no request at either engine"),
    };
    let (refuses, mut serves) = if one_first { (one, other) } else { (other, one) };
    refuses.send("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    refuses.done();
    let second = serves.arrived().await.context("no second try")?;
    for request in [&first, &second] {
        assert_eq!(String::from_utf8_lossy(&request.body), REWRITTEN);
    }
    serves.send_stream_head();
    serves.send_chunk(stream().as_bytes());
    serves.end_chunks();
    assert_eq!(client.head().await?.status, 200);
    assert_eq!(String::from_utf8_lossy(&client.rest().await?), restored());
    let log = stack.access("twice").await?;
    assert_eq!((log.attempts, log.target_model.as_deref()), (Some(2), Some("llama-70b")));
    assert_eq!(
        (log.reason.as_deref(), log.cause.as_deref()),
        (Some("retried_elsewhere"), Some("completed"))
    );
    assert_eq!(log.endpoint, log.upstream);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_with_trailers_is_rewritten() -> Result<()> {
    let bed = Bed::start(&[&[LABEL]], &configured()).await?;
    let mut client = H2Connection::open(bed.stack.listen()).await?;
    let length = ASK.len().to_string();
    for (id, known) in [("of-known-length", true), ("of-unknown-length", false)] {
        // Cut within the name.
        let (head, tail) = ASK.split_at(13);
        let frames = [head, tail].map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
        let mut headers = vec![("x-request-id", id)];
        headers.extend(known.then_some(("content-length", length.as_str())));
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("x-trailer", "1".parse()?);
        let answer = client.post(CHAT, &headers, frames.into(), End::Trailers(trailers)).await?;
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        let seen = answer.json();
        assert_eq!(
            (&seen["body"], &seen["body_bytes"]),
            (&json!(REWRITTEN), &json!(REWRITTEN.len())),
            "{id}"
        );
        assert_eq!(seen["model"], "support", "{id}");
    }
    Ok(())
}
