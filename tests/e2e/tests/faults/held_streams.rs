//! Streams that run until the test lets go of them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use e2e::client::CHAT;
use e2e::prompts::{body, chat, fresh_text};
use e2e::raw_client::RawClient;
use e2e::stack::DEBUG_PATH;
use e2e::state::FilterState;
use serde_json::json;

/// Arguments of a simulator whose streams last for minutes and tell a token every 200 ms, while an answer
/// of one token comes at once. It forgets no prompt that a test has time to send.
pub(crate) const SLOW_DECODE: [&str; 6] =
    ["--decode-ms", "200", "--prefill-rate", "10000000", "--num-blocks", "100000"];

/// A stream that has begun.
pub(crate) struct HeldStream {
    client: RawClient,
    /// Incarnation of the VM that serves it.
    pub(crate) worker: String,
}

impl HeldStream {
    /// Begins a stream of so many tokens, on whichever worker takes the connection.
    pub(crate) async fn begin(listen: SocketAddr, tokens: u32) -> Result<Self> {
        let mut client = RawClient::connect(listen).await?;
        client.send(format!("GET {DEBUG_PATH} HTTP/1.1\r\nhost: e2e\r\n\r\n").as_bytes()).await?;
        client.head().await?;
        let state: FilterState = serde_json::from_slice(&client.rest().await?)?;
        let mut request = chat(&fresh_text(400), tokens);
        request["stream"] = json!(true);
        client.post(CHAT, &fresh_text(16), &[], &body(&request)).await?;
        let head = client.head().await?;
        ensure!(head.status == 200, "status {}", head.status);
        client.data().await?.context("the first event")?;
        Ok(Self { client, worker: state.incarnation })
    }

    /// Whether more of it comes; `false` once it has ended or broken.
    pub(crate) async fn goes_on(&mut self) -> bool {
        matches!(self.client.data().await, Ok(Some(_)))
    }

    /// Reads on; whether it comes to its proper end.
    pub(crate) async fn whole(&mut self) -> Result<bool> {
        let rest = self.client.rest().await?;
        Ok(rest.ends_with(b"data: [DONE]\n\n"))
    }

    /// Reads on until it ends or breaks.
    pub(crate) async fn until_it_ends(&mut self) {
        while self.goes_on().await {}
    }
}

/// Begins so many streams, of so many tokens each, that every one of `workers` workers has some.
pub(crate) async fn on_every_worker(
    listen: SocketAddr,
    workers: usize,
    tokens: u32,
) -> Result<Vec<HeldStream>> {
    let mut held: Vec<HeldStream> = Vec::new();
    loop {
        let mut seen: Vec<&str> = held.iter().map(|stream| stream.worker.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() == workers && held.len() >= 4 * workers {
            return Ok(held);
        }
        ensure!(held.len() < 200, "streams on {} of {workers} workers", seen.len());
        held.push(HeldStream::begin(listen, tokens).await?);
    }
}
