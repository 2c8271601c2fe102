//! Conversations: what a turn left in the engine's cache is known at the next one, token for token.

use crate::bed::{BLOCK, BYTE_BLOCK, Conversation, ask};
use anyhow::Result;
use e2e::prompts::{chat, fresh_text};
use e2e::{Setup, Stack};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn each_turn_is_believed_cached_as_far_as_it_is() -> Result<()> {
    let stack = Stack::start(Setup::new(3, 2).precise()).await?;
    let mut conversation = Conversation::new(3000, 40);
    let first = conversation.turn(&stack, "turn-0").await?;
    assert_eq!((first.believed(), first.cached, first.kind()), (0, 0, "nothing"));
    for turn in 1..5 {
        let told = conversation.told(&stack, &format!("told-{turn}")).await?;
        told.assert_exact();
        assert_eq!(told.engine, first.engine);
        let next = conversation.turn(&stack, &format!("turn-{turn}")).await?;
        assert!(next.cached > 600, "{}", next.cached);
        assert_eq!(next.engine, first.engine);
    }
    Ok(())
}

/// Its answers are canonical text, so that what was decoded is known as well as what was prefilled.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_turn_hits_on_the_answer_to_the_first() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 2).precise()).await?;
    let mut conversation = Conversation::new(600, 400);
    let first = conversation.turn(&stack, "first").await?;
    let prompt = first.log.prompt_tokens().unwrap_or(0);
    let told = async || {
        let mut body = conversation.body();
        body["max_tokens"] = json!(1);
        let id = format!("second-{}", fastrand::u64(..));
        let outcome = ask(&stack, &id, &body).await.ok()?;
        // Beyond the first prompt: into the answer, down to its last blocks.
        let far = outcome.believed() + BYTE_BLOCK + BLOCK > prompt + 400 - BLOCK;
        (outcome.kind() == "events" && far).then_some(outcome)
    };
    let second = stack.until("a belief that covers the answer", told).await?;
    second.assert_exact();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_known_as_well() -> Result<()> {
    use e2e::client::{Request, send};
    let stack = Stack::start(Setup::new(2, 2).precise()).await?;
    let prompt = fresh_text(3000);
    let tries = std::sync::atomic::AtomicU32::new(0);
    let again = async || {
        let n = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let id = format!("completion-{n}");
        let body = json!({"model": e2e::stack::MODEL, "prompt": &prompt, "max_tokens": 1});
        let request = Request::post("/v1/completions", body.to_string().into())
            .header("content-type", "application/json")
            .id(&id);
        let answer = send(stack.listen(), &request).await.ok()?;
        let cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()?;
        let log = stack.access(&id).await.ok()?;
        (log.matched_kind.as_deref() == Some("events")).then_some((log, cached))
    };
    let (log, cached) = stack.until("a belief that rests on events", again).await?;
    assert_eq!(log.prompt_source.as_deref(), Some("rendered"));
    let believed = log.matched_tokens().unwrap_or(0);
    assert!(believed <= cached && cached - believed <= BYTE_BLOCK + BLOCK, "{believed} {cached}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_cannot_be_rendered_is_routed_all_the_same() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 2).precise()).await?;
    let mut body = chat(&fresh_text(2000), 4);
    body["chat_template"] = json!("{{ messages }}");
    let first = ask(&stack, "own-1", &body).await?;
    let second = ask(&stack, "own-2", &body).await?;
    assert_eq!(first.log.prompt_source.as_deref(), Some("unrendered"));
    assert_eq!(
        (second.engine, second.log.matched_kind.as_deref()),
        (first.engine, Some("approximate"))
    );
    Ok(())
}
