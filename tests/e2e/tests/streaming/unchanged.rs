//! Answers that are no stream of tokens.

use anyhow::{Context as _, Result, ensure};
use e2e::access_log::Access;
use e2e::client::CHAT;
use e2e::scripted_engine::Served;

use crate::bed::{ASK, Bed};
use crate::usage::usage_in;

/// What the client must find as the engine sent it.
const KEPT: [&str; 5] =
    ["content-type", "content-length", "content-encoding", "retry-after", "x-request-id"];

async fn passes(bed: &Bed, id: &str, status: u16, headers: &[&str], body: &[u8]) -> Result<Access> {
    let retried = status == 503;
    let tries: Vec<Served> =
        (0..if retried { 3 } else { 1 }).map(|_| bed.engine.expect(id)).collect();
    let mut client = bed.connect().await?;
    client.post(CHAT, id, &[], ASK).await?;
    let answer =
        format!("HTTP/1.1 {status} As It Is\r\n{}\r\n\r\n", headers.join("\r\n")).into_bytes();
    let chunked = headers.iter().any(|header| header.starts_with("transfer-encoding"));
    for mut served in tries {
        ensure!(served.arrived().await.context("no request")?.body == ASK, "{id}: another body");
        answer_with(&served, &answer, chunked, body);
        served.done();
    }
    let head = client.head().await?;
    let got = client.rest().await?;
    assert_eq!((head.status, got.as_slice()), (status, body), "{id}");
    for name in KEPT {
        let sent = headers.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        assert_eq!(head.header(name), sent, "{id}: {name}");
    }
    assert_eq!(head.header("x-envoy-attempt-count"), None, "{id}");
    let record = bed.stack.access(id).await?;
    assert_eq!(record.attempts, Some(if retried { 3 } else { 1 }), "{id}");
    Ok(record)
}

fn answer_with(served: &Served, head: &[u8], chunked: bool, body: &[u8]) {
    served.send(head);
    if chunked {
        body.chunks(7).for_each(|piece| served.send_chunk(piece));
        served.send("0\r\n\r\n");
    } else {
        served.send(body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_odd_answers_pass_as_they_are() -> Result<()> {
    let bed = Bed::start().await?;
    let busy = captured!("error_queue_full.json");
    let json = "content-type: application/json";
    for (status, body) in [
        (400, captured!("error_unknown_model.json")),
        (401, captured!("error_no_api_key.json")),
        (404, captured!("error_unknown_model.json")),
        (422, r#"{"detail":[]}"#),
        (429, busy),
        (500, busy),
        (503, busy),
    ] {
        let length = format!("content-length: {}", body.len());
        for (framing, id) in
            [(length.as_str(), "length"), ("transfer-encoding: chunked", "chunked")]
        {
            let headers = [json, framing, "retry-after: 7"];
            let id = format!("{id}-{status}");
            let record = passes(&bed, &id, status, &headers, body.as_bytes()).await?;
            assert_eq!(record.cause.as_deref(), Some("refused"), "{id}");
            assert_eq!(record.status, status, "{id}");
        }
    }

    let gzip = "content-encoding: gzip";
    let chat = captured!("chat.json");
    let length = format!("content-length: {}", chat.len());
    // Ten bytes of a gzip head; what follows is nobody's business here.
    let zipped = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03 and so on";
    let stream = "content-type: text/event-stream";
    let cases: [(&str, u16, &[&str], &[u8]); 7] = [
        ("no content", 204, &[], b""),
        ("whole", 200, &[json, &length], chat.as_bytes()),
        ("empty", 200, &[json, "content-length: 0"], b""),
        ("gzip", 200, &[json, gzip, "transfer-encoding: chunked"], zipped),
        ("gzip stream", 200, &[stream, gzip, "transfer-encoding: chunked"], zipped),
        ("gzip of nothing", 200, &[json, gzip, "content-length: 0"], b""),
        ("gzip of nothing, chunked", 200, &[json, gzip, "transfer-encoding: chunked"], b""),
    ];
    for (id, status, headers, body) in cases {
        let record = passes(&bed, id, status, headers, body).await?;
        let expected = if id == "whole" { [Some(153), Some(128), Some(8)] } else { [None; 3] };
        assert_eq!(usage_in(&record), expected, "{id}");
        let complete = if id == "empty" { "truncated" } else { "completed" };
        assert_eq!(record.cause.as_deref(), Some(complete), "{id}");
    }
    bed.nothing_in_flight().await
}
