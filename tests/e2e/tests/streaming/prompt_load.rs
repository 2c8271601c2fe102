//! What a prompt weighs while the engine has not computed it.

use anyhow::Result;

use crate::bed::Bed;

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
