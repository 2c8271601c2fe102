//! However a body is cut on its way, it is read the same, and reaches the engine as it was sent.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use e2e::client::{CHAT, Request, send};
use e2e::h2_client::{End, H2Connection};
use e2e::prompts::{body, chat, fresh_text};
use e2e::raw_client::{RawClient, post_head};
use e2e::state::arrival;
use e2e::{Setup, Stack};
use hyper::HeaderMap;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

/// What must not depend on the cut.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    endpoint: String,
    matched_tokens: u64,
    prompt_tokens: u64,
    body_bytes: usize,
    body_xxh3: String,
}

struct Cuts {
    stack: Stack,
    body: Bytes,
    expected: Decision,
}

impl Cuts {
    /// A body of about `bytes` bytes, held by one of four engines.
    async fn prepare(bytes: usize) -> Result<Self> {
        let simulator = ["--prefill-rate", "1000000", "--decode-ms", "1"];
        let stack = Stack::start(Setup::new(4, 2).simulator(&simulator)).await?;
        let mut chat = chat(&fresh_text(bytes), 2);
        // A stream without usage: nothing changes what the filter believes of bytes per token.
        chat["stream"] = json!(true);
        let body = body(&chat);
        let whole = Request::post(CHAT, body.clone()).header("content-type", "application/json");
        let first = send(stack.listen(), &whole.clone().id("cold")).await?;
        ensure!(first.status == 200, "status {}: {}", first.status, first.text());
        let cold = decision(&stack, "cold").await?;
        send(stack.listen(), &whole.id("whole")).await?;
        let expected = decision(&stack, "whole").await?;
        assert_eq!(expected.endpoint, cold.endpoint);
        assert!(expected.matched_tokens > 0 && cold.matched_tokens == 0, "{cold:?} {expected:?}");
        assert_eq!(expected.body_xxh3, format!("{:016x}", xxh3_64(&body)));
        Ok(Self { stack, body, expected })
    }

    async fn check(&self, id: &str) -> Result<()> {
        let decision = decision(&self.stack, id).await?;
        ensure!(decision == self.expected, "{id}: {decision:?}, not {:?}", self.expected);
        Ok(())
    }

    /// The body in pieces of these lengths, over and over.
    fn pieces(&self, lengths: &[usize]) -> Vec<Bytes> {
        let (mut rest, mut pieces) = (self.body.clone(), Vec::new());
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(rest.split_to(rest.len().min(*length)));
        }
        pieces
    }

    /// HTTP/1.1 with a content-length: each piece by a write of its own.
    async fn http1_with_length(&self, id: &str, lengths: &[usize]) -> Result<()> {
        let mut client = RawClient::connect(self.stack.listen()).await?;
        client.send(post_head(CHAT, id, &[], self.body.len()).as_bytes()).await?;
        for piece in self.pieces(lengths) {
            client.send(&piece).await?;
        }
        self.answered(id, &mut client).await
    }

    /// HTTP/1.1, each piece a chunk.
    async fn http1_chunked(&self, id: &str, lengths: &[usize]) -> Result<()> {
        let mut client = RawClient::connect(self.stack.listen()).await?;
        client.send(chunked_head(id).as_bytes()).await?;
        for piece in self.pieces(lengths) {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(&piece);
            chunk.extend_from_slice(b"\r\n");
            client.send(&chunk).await?;
        }
        client.send(b"0\r\n\r\n").await?;
        self.answered(id, &mut client).await
    }

    async fn answered(&self, id: &str, client: &mut RawClient) -> Result<()> {
        let head = client.head().await?;
        let rest = client.rest().await?;
        ensure!(head.status == 200, "{id}: {}: {}", head.status, String::from_utf8_lossy(&rest));
        self.check(id).await
    }

    /// HTTP/2, each piece a DATA frame. `length`: with a content-length.
    async fn http2(&self, id: &str, lengths: &[usize], end: End, length: bool) -> Result<()> {
        let size = self.body.len().to_string();
        let mut headers = vec![("x-request-id", id)];
        headers.extend(length.then_some(("content-length", size.as_str())));
        let mut connection = H2Connection::open(self.stack.listen()).await?;
        let answer = connection.post(CHAT, &headers, self.pieces(lengths), end).await;
        let answer = answer.with_context(|| id.to_owned())?;
        ensure!(answer.status == 200, "{id}: {}: {}", answer.status, answer.text());
        self.check(id).await
    }
}

async fn decision(stack: &Stack, id: &str) -> Result<Decision> {
    let log = stack.access(id).await?;
    let engines = stack.engines().await?;
    let (engine, request) = arrival(&engines, id).context("the request arrived nowhere")?;
    let endpoint = log.endpoint.clone().context("no endpoint in the access log")?;
    ensure!(endpoint == engine.endpoint, "{endpoint} was picked, {} served", engine.endpoint);
    Ok(Decision {
        endpoint,
        matched_tokens: log.matched_tokens().context("no matched_tokens in the access log")?,
        prompt_tokens: request.prompt_tokens,
        body_bytes: request.body_bytes,
        body_xxh3: request.body_xxh3.clone(),
    })
}

fn chunked_head(id: &str) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: e2e\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    )
}

fn trailers() -> End {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "0".parse().expect("a header's value"));
    End::Trailers(trailers)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_40_kb_cut_anywhere_is_decided_alike() -> Result<()> {
    let cuts = Cuts::prepare(40 << 10).await?;
    let (eight_kib, odd) = ([8 << 10], [1, 7, 1000, 3, 8191, 129]);
    cuts.http1_with_length("h1-8k", &eight_kib).await?;
    cuts.http1_with_length("h1-odd", &odd).await?;
    cuts.http1_chunked("chunked-8k", &eight_kib).await?;
    cuts.http1_chunked("chunked-odd", &odd).await?;
    cuts.http1_chunked("chunked-whole", &[usize::MAX]).await?;
    cuts.http2("h2-8k", &eight_kib, End::LastFrame, false).await?;
    cuts.http2("h2-8k-length", &eight_kib, End::LastFrame, true).await?;
    cuts.http2("h2-odd", &odd, End::LastFrame, false).await?;
    cuts.http2("h2-empty-end", &eight_kib, End::EmptyFrame, false).await?;
    cuts.http2("h2-trailers", &eight_kib, trailers(), false).await?;
    cuts.http2("h2-trailers-length", &odd, trailers(), true).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_byte_by_byte_is_decided_alike() -> Result<()> {
    let cuts = Cuts::prepare(2000).await?;
    cuts.http1_with_length("h1-bytes", &[1]).await?;
    cuts.http1_chunked("chunked-bytes", &[1]).await?;
    cuts.http2("h2-bytes", &[1], End::LastFrame, false).await?;
    cuts.http2("h2-bytes-length", &[1], End::EmptyFrame, true).await?;
    cuts.http2("h2-bytes-trailers", &[1], trailers(), false).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_continue_is_told_to_go_on() -> Result<()> {
    let cuts = Cuts::prepare(2000).await?;
    let id = "expect";
    let mut client = RawClient::connect(cuts.stack.listen()).await?;
    let head = post_head(CHAT, id, &["expect: 100-continue"], cuts.body.len());
    client.send(head.as_bytes()).await?;
    // No byte of the body before this came.
    assert_eq!(client.interim().await?.status, 100);
    client.send(&cuts.body).await?;
    cuts.answered(id, &mut client).await
}
