//! Answers on their way through: read, not touched, not held up.
#![cfg(feature = "e2e")]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::access_log::{self, Access};
use e2e::client::CHAT;
use e2e::raw_client::RawClient;
use e2e::scripted_engine::{ScriptedEngine, Served};
use e2e::{Endpoint, Setup, Stack};
use serde_json::Value;

macro_rules! captured {
    ($name:literal) => {
        include_str!(concat!("../../../filter/core/src/response/fixtures/", $name))
    };
}

const ASK: &[u8] = br#"{"model":"llama-70b","stream":true,"messages":[{"role":"user","content":"Tell me something, and take your time about it."}]}"#;

/// A stack whose one engine is the test itself.
struct Bed {
    stack: Stack,
    engine: ScriptedEngine,
}

impl Bed {
    async fn start() -> Result<Self> {
        let engine = ScriptedEngine::start().await?;
        let mut setup = Setup::new(0, 2);
        let name = "scripted".to_owned();
        setup.other_endpoints.push(Endpoint { name, address: engine.address });
        Ok(Self { stack: Stack::start(setup).await?, engine })
    }

    async fn connect(&self) -> Result<RawClient> {
        Ok(RawClient::connect(self.stack.listen()).await?)
    }

    /// Sends the request over `client`; returns once the engine has it.
    async fn ask(&self, client: &mut RawClient, id: &str) -> Result<Served> {
        let mut served = self.engine.expect(id);
        client.post(CHAT, id, &[], ASK).await?;
        let request = served.arrived().await.context("the engine got no request")?;
        ensure!(request.body == ASK, "{id}: the engine got another body");
        Ok(served)
    }

    /// A stream has begun at the engine, and its head is at the client.
    async fn begin_stream(&self, client: &mut RawClient, id: &str) -> Result<Served> {
        let served = self.ask(client, id).await?;
        served.send_stream_head();
        let head = client.head().await?;
        ensure!(head.status == 200, "{id}: status {}", head.status);
        Ok(served)
    }

    /// Records by request id, once there are `count`.
    async fn records(&self, count: usize) -> Result<HashMap<String, Access>> {
        let path = self.stack.dir().join(access_log::FILE);
        let all = async || {
            let posts =
                access_log::read(&path).into_iter().filter(|r| r.path.as_deref() == Some(CHAT));
            let by_id: HashMap<_, _> = posts
                .map(|record| (record.request_id.clone().unwrap_or_default(), record))
                .collect();
            (by_id.len() >= count).then_some(by_id)
        };
        self.stack.until(&format!("{count} records in the access log"), all).await
    }

    async fn nothing_in_flight(&self) -> Result<()> {
        let idle = async || {
            let state = self.stack.filter_state().await.ok()?;
            let endpoint = state.endpoints.first()?;
            let left = endpoint.in_flight;
            (state.in_flight == 0
                && (left.requests, left.waiting, left.uncached_tokens) == (0, 0, 0))
                .then_some(())
        };
        self.stack.until("nothing is in flight any more", idle).await
    }
}

/// A captured stream in other clothes.
struct Variant {
    name: String,
    bytes: Vec<u8>,
    /// Where the event with the usage begins.
    tail: usize,
}

fn variants(captured: &str) -> Vec<Variant> {
    let mut all = Vec::new();
    for (line_name, line_end) in [("lf", "\n"), ("crlf", "\r\n"), ("cr", "\r")] {
        for (field_name, field) in [("space", "data: "), ("bare", "data:")] {
            let text = captured.replace("\ndata: ", &format!("\n{field}")).replace('\n', line_end);
            let tail = text.find(r#""choices":[],"usage""#).expect("an event with the usage");
            let tail = text[..tail].rfind(field).expect("its start");
            all.push(Variant {
                name: format!("{line_name}-{field_name}"),
                bytes: text.into(),
                tail,
            });
        }
    }
    all
}

/// Tokens of prompt, cached and answer, as the last usage of a captured stream has them.
fn usage_of(captured: &str) -> [Option<u64>; 3] {
    let chunks = captured.lines().filter_map(|line| {
        let chunk: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        chunk.get("usage").filter(|usage| usage.is_object()).cloned()
    });
    let usage = chunks.last().expect("a usage");
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    [
        count("/prompt_tokens"),
        count("/prompt_tokens_details/cached_tokens"),
        count("/completion_tokens"),
    ]
}

fn usage_in(record: &Access) -> [Option<u64>; 3] {
    [record.prompt_tokens(), record.cached_tokens(), record.completion_tokens()]
}

/// The upstream holds back all that follows the cut until the client has read all that precedes it, so
/// every cut is one that the filter really meets, and nothing can be buffered.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_anywhere_passes_at_once_and_tells_the_same_usage() -> Result<()> {
    let captured = captured!("sse_chat_include_usage.txt");
    let expected = usage_of(captured);
    assert_eq!(
        expected,
        [Some(153), Some(0), Some(12)],
        "the capture that this test was written for"
    );
    let variants = Arc::new(variants(captured));
    let mut cuts = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        cuts.extend((1..variant.tail).step_by(61).map(|at| (index, at)));
        cuts.extend((variant.tail..variant.bytes.len()).map(|at| (index, at)));
    }
    let (cuts, next) = (Arc::new(cuts), Arc::new(AtomicUsize::new(0)));
    assert!(cuts.len() > 1500);

    let bed = Arc::new(Bed::start().await?);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (bed, variants) = (Arc::clone(&bed), Arc::clone(&variants));
        let (cuts, next) = (Arc::clone(&cuts), Arc::clone(&next));
        clients.spawn(async move {
            let mut client = bed.connect().await?;
            while let Some(&(index, at)) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let variant = &variants[index];
                let id = format!("{}-{at}", variant.name);
                let (before, after) = variant.bytes.split_at(at);
                let served = bed.begin_stream(&mut client, &id).await?;
                served.send_chunk(before);
                ensure!(client.data_until(at).await? == before, "{id}: other bytes before the cut");
                served.send_chunk(after);
                served.end_chunks();
                ensure!(client.rest().await? == after, "{id}: other bytes after the cut");
            }
            Ok(())
        });
    }
    for result in clients.join_all().await {
        result?;
    }
    let records = bed.records(cuts.len()).await?;
    for (index, at) in cuts.iter() {
        let id = format!("{}-{at}", variants[*index].name);
        let record = records.get(&id).with_context(|| format!("no record of {id}"))?;
        assert_eq!(usage_in(record), expected, "{id}");
        assert_eq!(record.cause.as_deref(), Some("completed"), "{id}");
        assert!(record.ttft_ms().is_some(), "{id}: no first token");
    }
    bed.nothing_in_flight().await
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_in_single_bytes_and_of_every_kind_tell_their_usage() -> Result<()> {
    let bed = Bed::start().await?;
    let streams = [
        captured!("sse_chat_include_usage.txt"),
        captured!("sse_chat_continuous_usage.txt"),
        captured!("sse_completion_include_usage.txt"),
        captured!("sse_completion_continuous_usage.txt"),
        captured!("sse_force_usage.txt"),
        captured!("sse_keepalive.txt"),
        captured!("sse_chat_no_usage.txt"),
    ];
    let mut client = bed.connect().await?;
    for (index, captured) in streams.iter().enumerate() {
        let whole = format!("whole-{index}");
        let served = bed.begin_stream(&mut client, &whole).await?;
        served.send_chunk(captured.as_bytes());
        served.end_chunks();
        assert_eq!(client.rest().await?, captured.as_bytes());

        let bytewise = format!("bytewise-{index}");
        let served = bed.begin_stream(&mut client, &bytewise).await?;
        captured.as_bytes().chunks(1).for_each(|byte| served.send_chunk(byte));
        served.end_chunks();
        assert_eq!(client.rest().await?, captured.as_bytes());

        for id in [whole, bytewise] {
            let record = bed.stack.access(&id).await?;
            let last = index == streams.len() - 1;
            let expected = if last { [None; 3] } else { usage_of(captured) };
            assert_eq!(usage_in(&record), expected, "{id}");
            assert_eq!(record.cause.as_deref(), Some("completed"), "{id}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_engine_computes_the_prompt_counts_and_comments_are_no_token() -> Result<()> {
    let bed = Bed::start().await?;
    let charged = async || {
        let state = bed.stack.filter_state().await.ok()?;
        Some(state.endpoints.first()?.in_flight)
    };
    let mut client = bed.connect().await?;
    let served = bed.begin_stream(&mut client, "slow").await?;
    for _ in 0..3 {
        served.send_chunk(b": keep-alive\n\n");
        assert_eq!(client.data().await?.as_deref(), Some(b": keep-alive\n\n".as_slice()));
    }
    let computing = async || charged().await.filter(|c| c.requests == 1 && c.uncached_tokens > 0);
    bed.stack.until("the prompt of the silent stream is still charged", computing).await?;

    let token = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    served.send_chunk(token);
    assert_eq!(client.data().await?.as_deref(), Some(token.as_slice()));
    let decoding = async || charged().await.filter(|c| (c.requests, c.uncached_tokens) == (1, 0));
    bed.stack.until("the request is charged, its prompt no longer", decoding).await?;
    served.end_chunks();
    client.rest().await?;
    assert!(bed.stack.access("slow").await?.ttft_ms().is_some());

    let served = bed.begin_stream(&mut client, "comments").await?;
    served.send_chunk(b": keep-alive\n\n: keep-alive\n\n");
    served.end_chunks();
    client.rest().await?;
    let record = bed.stack.access("comments").await?;
    assert_eq!(record.ttft_ms(), None);
    assert_eq!(record.cause.as_deref(), Some("truncated"));
    bed.nothing_in_flight().await
}

/// How a stream of the test below ends.
#[derive(Debug, Clone, Copy)]
enum End {
    LastChunk,
    Close,
    Reset,
    /// What comes is no chunk.
    Garbage,
    ClientResets,
    ClientCloses,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_tells_deaths_from_success() -> Result<()> {
    let crash = captured!("sse_engine_crash_midstream.txt");
    let whole = captured!("sse_chat_include_usage.txt");
    let without_done = whole.strip_suffix("data: [DONE]\n\n").expect("a stream that is complete");
    let two_events = whole.split_inclusive("\n\n").take(2).collect::<String>();
    let cases = [
        ("engine killed", crash, End::Close, "truncated"),
        ("engine killed, with a reset", crash, End::Reset, "truncated"),
        (
            "one engine killed",
            captured!("sse_engine_crash_single.txt"),
            End::LastChunk,
            "engine_error",
        ),
        ("drained", captured!("sse_sigterm_drain_midstream.txt"), End::LastChunk, "completed"),
        ("ended well", whole, End::LastChunk, "completed"),
        ("no DONE", without_done, End::LastChunk, "truncated"),
        ("cut off early", two_events.as_str(), End::LastChunk, "truncated"),
        ("bad chunk", two_events.as_str(), End::Garbage, "truncated"),
        ("client resets", two_events.as_str(), End::ClientResets, "client_gone"),
        ("client closes", two_events.as_str(), End::ClientCloses, "client_gone"),
        ("client closes after DONE", whole, End::ClientCloses, "completed"),
    ];
    let bed = Bed::start().await?;
    for (name, text, end, cause) in cases {
        let mut client = bed.connect().await?;
        let mut served = bed.begin_stream(&mut client, name).await?;
        served.send_chunk(text.as_bytes());
        let got = client.data_until(text.len()).await?;
        assert_eq!(got, text.as_bytes(), "{name}");
        let rest = match end {
            End::ClientResets | End::ClientCloses => {
                if matches!(end, End::ClientResets) {
                    client.reset()
                } else {
                    client.close()
                }
                served.hung_up().await;
                None
            }
            End::LastChunk => {
                served.end_chunks();
                Some(client.rest().await)
            }
            End::Close => {
                served.close();
                Some(client.rest().await)
            }
            End::Reset => {
                served.reset();
                Some(client.rest().await)
            }
            End::Garbage => {
                served.send("nothing like a chunk\r\n");
                Some(client.rest().await)
            }
        };
        // An answer that was cut off must not look complete to the client.
        if let Some(rest) = rest {
            match (end, rest) {
                (End::LastChunk, rest) => assert_eq!(rest?, b"", "{name}"),
                (_, Err(error)) => assert_ne!(error.kind(), ErrorKind::TimedOut, "{name}"),
                (_, Ok(rest)) => panic!("{name}: the client saw a proper end after {rest:?}"),
            }
        }
        let record = bed.stack.access(name).await?;
        assert_eq!(record.cause.as_deref(), Some(cause), "{name}: {record:?}");
        assert_eq!(record.status, 200, "{name}");
    }

    let mut client = bed.connect().await?;
    let mut served = bed.ask(&mut client, "client left while waiting").await?;
    client.reset();
    served.hung_up().await;
    let record = bed.stack.access("client left while waiting").await?;
    assert_eq!(record.cause.as_deref(), Some("client_gone"));

    let mut client = bed.connect().await?;
    bed.ask(&mut client, "no answer").await?.close();
    let head = client.head().await?;
    assert_eq!(head.status, 503);
    let error: Value = serde_json::from_slice(&client.rest().await?)?;
    assert_eq!(error["error"]["code"], 503, "{error}");
    let cause = bed.stack.access("no answer").await?.cause;
    assert!(!matches!(cause.as_deref(), None | Some("completed" | "client_gone")), "{cause:?}");

    bed.nothing_in_flight().await
}

/// What the client must find as the engine sent it.
const KEPT: [&str; 5] =
    ["content-type", "content-length", "content-encoding", "retry-after", "x-request-id"];

async fn passes(bed: &Bed, id: &str, status: u16, headers: &[&str], body: &[u8]) -> Result<Access> {
    let retried = status == 503;
    let tries: Vec<Served> =
        (0..if retried { 3 } else { 1 }).map(|_| bed.engine.expect(id)).collect();
    let mut client = bed.connect().await?;
    client.post(CHAT, id, &[], ASK).await?;
    let mut answer =
        format!("HTTP/1.1 {status} As It Is\r\n{}\r\n\r\n", headers.join("\r\n")).into_bytes();
    let chunked = headers.iter().any(|header| header.starts_with("transfer-encoding"));
    for mut served in tries {
        ensure!(served.arrived().await.context("no request")?.body == ASK, "{id}: another body");
        answer_with(&served, &mut answer, chunked, body);
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

fn answer_with(served: &Served, head: &mut Vec<u8>, chunked: bool, body: &[u8]) {
    served.send(head.clone());
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
