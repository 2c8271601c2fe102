//! The ways in which one request can end, and a client that brings each about.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use e2e::client::CHAT;
use e2e::prompts::{chat_of, fresh_text};
use e2e::raw_client::{RawClient, post_head};
use serde_json::{Value, json};

/// The request header by which the routes that [`short_timeouts`] adds are chosen.
const TIMEOUT: &str = "x-e2e-timeout";

/// How the client, or the route, ends a request. The engines have ways of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// Read to the end.
    Whole,
    /// A stream, read to the end.
    Stream,
    /// Reset after the headers.
    ResetBeforeBody,
    /// Reset within the body.
    ResetInBody,
    /// Reset while the engine computes.
    ResetWaiting,
    /// Reset within the stream.
    ResetMidStream,
    /// Closed within the stream.
    CloseMidStream,
    /// The route's time is up, before or within the answer.
    RouteTimeout,
    /// The engine says nothing for too long.
    IdleTimeout,
    /// The filter answers.
    Refused(Refusal),
}

/// Why the filter answers a request itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    BadJson,
    NoModel,
    NoBody,
    Compressed,
    TooLarge,
}

impl Refusal {
    const ALL: [Self; 5] =
        [Self::BadJson, Self::NoModel, Self::NoBody, Self::Compressed, Self::TooLarge];

    fn status(self) -> u16 {
        match self {
            Self::BadJson | Self::NoModel | Self::NoBody => 400,
            Self::Compressed => 415,
            Self::TooLarge => 413,
        }
    }
}

impl Ending {
    /// One of them; the common ones more often.
    pub(crate) fn choose(random: &mut fastrand::Rng) -> Self {
        match random.u32(0..20) {
            0..4 => Self::Whole,
            4..9 => Self::Stream,
            9 => Self::ResetBeforeBody,
            10 => Self::ResetInBody,
            11..13 => Self::ResetWaiting,
            13..15 => Self::ResetMidStream,
            15 => Self::CloseMidStream,
            16 => Self::RouteTimeout,
            17 => Self::IdleTimeout,
            _ => Self::Refused(Refusal::ALL[random.usize(0..Refusal::ALL.len())]),
        }
    }

    /// The client left before the end.
    pub(crate) fn is_clients(self) -> bool {
        matches!(
            self,
            Self::ResetBeforeBody
                | Self::ResetInBody
                | Self::ResetWaiting
                | Self::ResetMidStream
                | Self::CloseMidStream
        )
    }
}

/// Adds routes on which time is short to the bootstrap template.
pub(crate) fn short_timeouts(template: &str) -> String {
    let last = "              - match: { prefix: / }\n";
    let route = |name: &str, limit: &str| {
        let header = format!("{{ name: {TIMEOUT}, string_match: {{ exact: {name} }} }}");
        format!(
            "              - match: {{ prefix: /, headers: [{header}] }}\n                \
             route: {{ cluster: \"${{POOL}}\", {limit} }}\n"
        )
    };
    let routes =
        route("route", "timeout: 0.05s") + &route("idle", "timeout: 0s, idle_timeout: 0.05s");
    template.replace(last, &format!("{routes}{last}"))
}

/// What the client saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// It did not stay for an answer.
    Left,
    /// A whole answer.
    Status(u16),
    /// The answer broke off, or there was none.
    Broken,
}

/// Sends one request and ends it so.
///
/// # Errors
/// When the answer is one that cannot be, or none comes at all.
pub(crate) async fn carry_out(
    listen: SocketAddr,
    id: &str,
    ending: Ending,
    random: &mut fastrand::Rng,
    systems: &[String],
) -> Result<Seen, String> {
    let mut client =
        RawClient::connect(listen).await.map_err(|error| format!("connect: {error}"))?;
    let seen = match exchange(&mut client, id, ending, random, systems).await {
        Ok(seen) => seen,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(format!("{id} {ending:?}: no answer"));
        }
        Err(_) => Seen::Broken,
    };
    match ending {
        Ending::CloseMidStream => client.close(),
        // Also after a whole answer, which by then is nobody's any more.
        _ => client.reset(),
    }
    let allowed = match (ending, seen) {
        (Ending::Refused(why), seen) => seen == Seen::Status(why.status()),
        (_, Seen::Left) => ending.is_clients(),
        // Where Envoy has to wait for the processor, the answer may be faster than the time-out.
        (Ending::RouteTimeout | Ending::IdleTimeout, Seen::Status(status)) => {
            matches!(status, 200 | 500 | 503 | 504)
        }
        (_, Seen::Status(status)) => matches!(status, 200 | 500 | 503),
        (_, Seen::Broken) => true,
    };
    if allowed { Ok(seen) } else { Err(format!("{id} {ending:?}: {seen:?}")) }
}

async fn exchange(
    client: &mut RawClient,
    id: &str,
    ending: Ending,
    random: &mut fastrand::Rng,
    systems: &[String],
) -> io::Result<Seen> {
    match ending {
        Ending::Whole => {
            let reply = random.u32(1..24);
            client.post(CHAT, id, &[], &ask(random, systems, reply, false)).await?;
            finish(client).await
        }
        Ending::Stream => {
            let reply = random.u32(1..24);
            client.post(CHAT, id, &[], &ask(random, systems, reply, true)).await?;
            finish(client).await
        }
        Ending::ResetBeforeBody => {
            client.send(post_head(CHAT, id, &[], 1000).as_bytes()).await?;
            some_time(random).await;
            Ok(Seen::Left)
        }
        Ending::ResetInBody => {
            let body = ask(random, systems, 4, true);
            client.send(post_head(CHAT, id, &[], body.len()).as_bytes()).await?;
            client.send(&body[..random.usize(1..body.len())]).await?;
            some_time(random).await;
            Ok(Seen::Left)
        }
        Ending::ResetWaiting => {
            client.post(CHAT, id, &[], &ask(random, systems, 400, false)).await?;
            some_time(random).await;
            Ok(Seen::Left)
        }
        Ending::ResetMidStream | Ending::CloseMidStream => {
            client.post(CHAT, id, &[], &ask(random, systems, 400, true)).await?;
            let head = client.head().await?;
            for _ in 0..random.u32(0..20) {
                if client.data().await?.is_none() {
                    return Ok(Seen::Status(head.status));
                }
            }
            Ok(Seen::Left)
        }
        Ending::RouteTimeout => {
            let stream = random.bool();
            let header = format!("{TIMEOUT}: route");
            client.post(CHAT, id, &[&header], &ask(random, systems, 400, stream)).await?;
            finish(client).await
        }
        Ending::IdleTimeout => {
            let header = format!("{TIMEOUT}: idle");
            client.post(CHAT, id, &[&header], &ask(random, systems, 400, false)).await?;
            finish(client).await
        }
        Ending::Refused(why) => {
            refused(client, id, why).await?;
            finish(client).await
        }
    }
}

async fn refused(client: &mut RawClient, id: &str, why: Refusal) -> io::Result<()> {
    match why {
        Refusal::BadJson => {
            client.post(CHAT, id, &[], br#"{"model": "llama-70b", "messages"#).await
        }
        Refusal::NoModel => client.post(CHAT, id, &[], br#"{"messages": []}"#).await,
        Refusal::NoBody => client.post(CHAT, id, &[], b"").await,
        Refusal::Compressed => {
            client.post(CHAT, id, &["content-encoding: gzip"], b"\x1f\x8b\x08\x00").await
        }
        // It says so, and waits for what the server says to that.
        Refusal::TooLarge => client.send(post_head(CHAT, id, &[], 20_000_000).as_bytes()).await,
    }
}

async fn finish(client: &mut RawClient) -> io::Result<Seen> {
    let head = client.head().await?;
    client.rest().await?;
    Ok(Seen::Status(head.status))
}

/// Lets chance decide how far the other side comes before the client leaves.
async fn some_time(random: &mut fastrand::Rng) {
    tokio::time::sleep(Duration::from_micros(random.u64(0..6000))).await;
}

/// One of a few system prompts, and something that nobody else asked.
fn ask(random: &mut fastrand::Rng, systems: &[String], reply: u32, stream: bool) -> Vec<u8> {
    let system = &systems[random.usize(0..systems.len())];
    let mut ask: Value = chat_of(
        &json!([
            {"role": "system", "content": system},
            {"role": "user", "content": fresh_text(random.usize(20..400))},
        ]),
        reply,
    );
    ask["stream"] = json!(stream);
    ask.to_string().into_bytes()
}
