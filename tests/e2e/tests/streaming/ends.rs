//! How streams end, and what the access log says of it.

use std::io::ErrorKind;

use anyhow::Result;
use serde_json::Value;

use crate::bed::Bed;

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
                    client.reset();
                } else {
                    client.close();
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
    let record = bed.stack.access("no answer").await?;
    assert_eq!(record.cause.as_deref(), Some("no_response"));

    bed.nothing_in_flight().await
}
