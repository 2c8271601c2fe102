//! The same with 1, 4 and 8 workers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::client::Request;
use e2e::prompts::{chat_of, fresh_text};
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Setup, Stack};
use serde_json::{Value, json};

/// Engines; a pick by chance hits the right one this seldom.
const ENGINES: usize = 6;

const CONVERSATIONS: usize = 6;

const TURNS: usize = 5;

/// A conversation that grows by a turn at each request.
struct Conversation {
    messages: Vec<Value>,
    engine: Option<String>,
}

impl Conversation {
    fn new() -> Self {
        let system = json!({"role": "system", "content": fresh_text(3000)});
        Self { messages: vec![system], engine: None }
    }

    /// Asks on through this worker; from the second turn on the engine must be the one of the first.
    async fn go_on(&mut self, worker: &mut WorkerConnection, id: &str) -> Result<()> {
        self.messages.push(json!({"role": "user", "content": fresh_text(300)}));
        let request = Request::chat(&chat_of(&json!(self.messages), 2)).id(id);
        let answer = worker.send(&request).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let said = answer.json()["choices"][0]["message"]["content"].clone();
        self.messages.push(json!({"role": "assistant", "content": said}));
        let engine = answer.engine().context("x-sim-endpoint")?.to_owned();
        let first = self.engine.get_or_insert_with(|| engine.clone());
        assert_eq!(engine, *first, "{id} went elsewhere");
        Ok(())
    }
}

async fn works_with(workers: usize) -> Result<()> {
    let stack = Stack::start(Setup::new(ENGINES, workers)).await?;
    let mut connections = one_each(stack.listen(), workers).await?;
    let counted = async || {
        // One for each worker and one for the main thread.
        (stack.filter_state().await.ok()?.vms == workers + 1).then_some(())
    };
    stack.until(&format!("rows of {} VMs", workers + 1), counted).await?;

    let mut conversations: Vec<_> = (0..CONVERSATIONS).map(|_| Conversation::new()).collect();
    for turn in 0..TURNS {
        for (number, conversation) in conversations.iter_mut().enumerate() {
            // Each turn comes to another worker than the one before.
            let worker = (number + turn) % workers;
            conversation.go_on(&mut connections[worker], &format!("c{number}-t{turn}")).await?;
        }
    }
    for number in 0..CONVERSATIONS {
        let last = stack.access(&format!("c{number}-t{}", TURNS - 1)).await?;
        assert_eq!(last.reason.as_deref(), Some("prefix"), "{last:?}");
        assert!(last.matched_tokens() > Some(300), "{last:?}");
    }
    let left = async || (stack.filter_state().await.ok()?.in_flight == 0).then_some(());
    stack.until_for(Duration::from_secs(3), "nothing in flight", left).await?;
    for connection in &mut connections {
        let state = connection.state().await?;
        assert_eq!((state.in_flight_here, state.endpoints.len()), (0, ENGINES));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker() -> Result<()> {
    works_with(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn four_workers() -> Result<()> {
    works_with(4).await
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers() -> Result<()> {
    works_with(8).await
}
