//! Bodies over the limit: 413 that a client can read, over HTTP/1.1 and HTTP/2.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use e2e::access_log;
use e2e::client::{CHAT, Request, Response, send};
use e2e::h2_client::{End, H2Connection};
use e2e::prompts::chat;
use e2e::raw_client::{RawClient, post_head};
use e2e::{Setup, Stack};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::error_of;

const LIMIT: usize = 65_536;

/// A good chat of exactly `bytes` bytes.
fn chat_of_size(bytes: usize) -> Bytes {
    let mut body = chat("Hello", 1);
    body["metadata"] = "".into();
    let padding = "x".repeat(bytes - body.to_string().len());
    body["metadata"] = padding.into();
    body.to_string().into()
}

fn frames(body: &Bytes) -> Vec<Bytes> {
    body.chunks(16_384).map(|frame| body.slice_ref(frame)).collect()
}

async fn limited() -> Result<Stack> {
    let mut setup = Setup::new(1, 1);
    setup.plugin_config_extra = format!(r#", "max_body_bytes": {LIMIT}"#);
    Stack::start(setup).await
}

async fn http2(stack: &Stack, length: Option<usize>, body: &Bytes, end: End) -> Result<Response> {
    let length = length.map(|length| length.to_string());
    let headers: Vec<_> = length.iter().map(|length| ("content-length", length.as_str())).collect();
    let mut connection = H2Connection::open(stack.listen()).await?;
    connection.post(CHAT, &headers, frames(body), end).await
}

/// As most programs do it: hyper sends the whole body if it can, and reads the answer meanwhile.
async fn http2_by_hyper(stack: &Stack, body: Bytes) -> Result<Response> {
    let socket = tokio::net::TcpStream::connect(stack.listen()).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://{}{CHAT}", stack.listen()))
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let (head, body) = sender.send_request(request).await.context("no answer")?.into_parts();
    let body = body.collect().await.context("reading the answer's body")?.to_bytes();
    connection.abort();
    Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
}

async fn read(client: &mut RawClient) -> Result<Response> {
    let head = client.head().await?;
    let body = client.rest().await?.into();
    let mut response = Response { status: head.status, headers: Default::default(), body };
    for (name, value) in &head.headers {
        response.headers.append(hyper::header::HeaderName::try_from(name)?, value.parse()?);
    }
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_itself_passes() -> Result<()> {
    let stack = limited().await?;
    let body = chat_of_size(LIMIT);
    let request = Request::post(CHAT, body.clone()).header("content-type", "application/json");
    assert_eq!(send(stack.listen(), &request).await?.status, 200);
    assert_eq!(http2(&stack, None, &body, End::LastFrame).await?.status, 200);
    assert_eq!(http2(&stack, Some(LIMIT), &body, End::EmptyFrame).await?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http1_a_large_body_is_refused_readably() -> Result<()> {
    let stack = limited().await?;
    // By the length that the client announces, before it sends anything.
    let mut client = RawClient::connect(stack.listen()).await?;
    client.send(post_head(CHAT, "announced", &[], LIMIT + 1).as_bytes()).await?;
    error_of("announced", &read(&mut client).await?, 413);
    let log = stack.access("announced").await?;
    assert_eq!((log.details.as_deref(), log.status), (Some("warmroute_too_large"), 413));

    // By what has come.
    let mut client = RawClient::connect(stack.listen()).await?;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: e2e\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).await?;
    client.send(format!("{:x}\r\n", LIMIT + 1).as_bytes()).await?;
    client.send(&chat_of_size(LIMIT + 1)).await?;
    error_of("chunked", &read(&mut client).await?, 413);

    // By clients that send it all.
    for size in [LIMIT + 1, 1 << 20, 20 << 20] {
        let request = Request::post(CHAT, chat_of_size(size));
        error_of(&format!("{size}"), &send(stack.listen(), &request).await?, 413);
    }
    assert_eq!(stack.engines().await?[0].arrived, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http2_a_large_body_is_refused_readably() -> Result<()> {
    let stack = limited().await?;
    for size in [LIMIT + 1, 1 << 20, 20 << 20] {
        let large = chat_of_size(size);
        for length in [None, Some(size)] {
            let what = format!("{size} bytes, content-length {length:?}");
            let answer = http2(&stack, length, &large, End::LastFrame).await;
            error_of(&what, &answer.with_context(|| what.clone())?, 413);
        }
        let answer = http2_by_hyper(&stack, large).await;
        error_of("hyper", &answer.with_context(|| format!("hyper, {size} bytes"))?, 413);
    }
    let log = access_log::read(&stack.dir().join(access_log::FILE));
    assert!(
        log.iter().all(|record| record.details.as_deref() != Some("request_payload_too_large"))
    );
    // One that never ends is not listened to for ever.
    let endless = Bytes::from(vec![b' '; 80 << 20]);
    error_of("endless", &http2(&stack, None, &endless, End::Open).await?, 413);
    assert_eq!(stack.engines().await?[0].arrived, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_limit_is_met_before_envoys_own() -> Result<()> {
    const DEFAULT: usize = 16 << 20;
    let stack = Stack::start(Setup::new(1, 1)).await?;
    let large = chat_of_size(DEFAULT + 1);
    error_of("HTTP/1.1", &send(stack.listen(), &Request::post(CHAT, large.clone())).await?, 413);
    error_of("HTTP/2", &http2(&stack, None, &large, End::LastFrame).await?, 413);
    let most = http2(&stack, None, &chat_of_size(DEFAULT), End::LastFrame).await?;
    assert_eq!(most.status, 200, "{}", most.text());
    Ok(())
}
