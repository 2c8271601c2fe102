//! Streams cut anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::bed::Bed;
use crate::usage::{usage_in, usage_of};

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
