//! What was true once: after a restart, a loss, a clear or another engine at the same address no pick may rest on it.

use crate::bed::{BLOCK, Conversation, Outcome, ask};
use anyhow::{Context as _, Result};
use e2e::{Setup, Stack};
use serde_json::{Value, json};

/// Engines, and a conversation that one of them has computed and told of.
struct Told {
    stack: Stack,
    conversation: Conversation,
    replica: usize,
    before: Outcome,
}

async fn told(setup: Setup) -> Result<Told> {
    let stack = Stack::start(setup).await?;
    let mut conversation = Conversation::new(4000, 4);
    conversation.turn(&stack, "before").await?;
    let before = conversation.told(&stack, "told").await?;
    before.assert_exact();
    assert!(before.believed() > 500, "{}", before.believed());
    let address = before.engine.parse()?;
    let replica = stack.simulator.replicas.iter().position(|a| *a == address);
    Ok(Told { stack, conversation, replica: replica.context("an engine of ours")?, before })
}

impl Told {
    async fn fault(&self, fault: &str) -> Result<()> {
        self.order(json!({"replica": self.replica, "fault": fault})).await
    }

    async fn order(&self, order: Value) -> Result<()> {
        Ok(self.stack.simulator.fault(&order).await?)
    }

    async fn generation(&self) -> Option<(u64, bool)> {
        let state = self.stack.filter_state().await.ok()?;
        let mut all = state.endpoints.iter();
        all.find(|e| e.address == self.before.engine).map(|e| (e.generation, e.precise))
    }

    /// Waits until the endpoint's former blocks are void and its events are followed again.
    async fn until_fresh(&self, before: u64) -> Result<()> {
        let fresh = async || self.generation().await.filter(|(g, p)| *g != before && *p).map(drop);
        self.stack.until("a fresh start of the endpoint", fresh).await?;
        // Every worker must have heard: each connection lands on any of them.
        let all = async || {
            for _ in 0..16 {
                self.generation().await.filter(|(g, p)| *g != before && *p)?;
            }
            Some(())
        };
        self.stack.until("a fresh start in every worker", all).await
    }

    /// Nothing is believed of the conversation any more, and nothing is.
    async fn assert_cold(&self, id: &str) -> Result<()> {
        let after = ask(&self.stack, id, &self.conversation.body()).await?;
        // What all prompts begin with may have been computed again by another one.
        assert!(after.believed() <= after.cached && after.cached <= BLOCK, "{:?}", after.log);
        // It is learned anew, from events.
        self.conversation.told(&self.stack, &format!("{id}-again")).await?.assert_exact();
        Ok(())
    }
}

fn one() -> Setup {
    Setup::new(1, 2).precise()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_engine_is_cold() -> Result<()> {
    let told = told(one()).await?;
    let (before, _) = told.generation().await.context("no endpoint")?;
    told.fault("restart").await?;
    told.until_fresh(before).await?;
    told.assert_cold("restarted").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleared_cache_is_cold() -> Result<()> {
    let told = told(one()).await?;
    let address = told.stack.simulator.replicas[told.replica];
    warmroute_demo::processes::post(address, "/reset_prefix_cache", &json!({})).await?;
    // An engine tells of it with its next step.
    ask(&told.stack, "other", &Conversation::new(500, 1).body()).await?;
    // Only that step's prompt is left, of some 700 bytes.
    let cleared = async || {
        for _ in 0..16 {
            let blocks = told.stack.filter_state().await.ok()?.prefix_blocks;
            (blocks < 10).then_some(())?;
        }
        Some(())
    };
    told.stack.until("a table without the cleared blocks in every worker", cleared).await?;
    told.assert_cold("cleared").await
}

/// Lost batches are fetched again, and what they told counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_closed_by_a_replay() -> Result<()> {
    let told = told(one()).await?;
    let (before, _) = told.generation().await.context("no endpoint")?;
    told.order(json!({"replica": told.replica, "fault": "events_drop", "count": 3})).await?;
    let mut lost = Conversation::new(3000, 40);
    lost.turn(&told.stack, "lost").await?;
    lost.told(&told.stack, "lost-told").await?.assert_exact();
    assert_eq!(told.generation().await, Some((before, true)), "nothing had to be voided");
    told.conversation.told(&told.stack, "kept").await?.assert_exact();
    Ok(())
}

/// Batches that no replay brings back may have told of evictions: nothing of before counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_replay_voids_what_was_known() -> Result<()> {
    let told = told(one()).await?;
    let (before, _) = told.generation().await.context("no endpoint")?;
    told.order(json!({"replica": told.replica, "fault": "events_gap", "count": 2})).await?;
    Conversation::new(3000, 40).turn(&told.stack, "lost").await?;
    told.until_fresh(before).await?;
    let after = ask(&told.stack, "after", &told.conversation.body()).await?;
    // The engine still holds it; nobody may say so.
    assert_eq!(after.believed(), 0, "{:?}", after.log);
    assert!(after.cached > 0);
    let mut fresh = Conversation::new(3000, 4);
    fresh.turn(&told.stack, "fresh").await?;
    fresh.told(&told.stack, "fresh-told").await?.assert_exact();
    Ok(())
}

/// Another engine at the same address, within a second: cold, and late events of the old one change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn another_engine_at_the_same_address_is_cold() -> Result<()> {
    let told = told(Setup::new(2, 2).precise()).await?;
    let (before, _) = told.generation().await.context("no endpoint")?;
    let port = told.stack.simulator.replicas[told.replica].port();
    let admin = told.stack.simulator.admin;
    let path = format!("/replicas/{}", told.replica);
    warmroute_demo::processes::delete(admin, &path).await?;
    told.stack.simulator.order("/replicas", &json!({"port": port})).await?;
    told.until_fresh(before).await?;
    let after = ask(&told.stack, "reused", &told.conversation.body()).await?;
    assert_eq!((after.believed(), after.cached), (0, 0), "{:?}", after.log);
    Ok(())
}

/// The agent's successor learns all of it anew, by replay.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_knows_it_again() -> Result<()> {
    let mut told = told(one()).await?;
    told.stack.start_agent().await?;
    told.stack.wait_precise(1).await?;
    told.conversation.told(&told.stack, "known-again").await?.assert_exact();
    Ok(())
}

/// What is evicted is known to be gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_prompt_is_not_believed_held() -> Result<()> {
    let small = ["--num-blocks", "300", "--max-model-len", "4700"];
    let told = told(one().simulator(&small)).await?;
    for n in 0..4 {
        // Once it is told, so is what was evicted for it.
        let filler = Conversation::new(4000, 1);
        filler.told(&told.stack, &format!("filler-{n}")).await?;
    }
    let after = ask(&told.stack, "evicted", &told.conversation.body()).await?;
    assert!(after.cached < told.before.cached, "{} tokens are still there", after.cached);
    after.assert_exact();
    Ok(())
}
