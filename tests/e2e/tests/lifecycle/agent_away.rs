//! The agent goes for half a minute and comes back, and a long answer that sees all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::client::{CHAT, Request, send};
use e2e::prompts::{body, chat, fresh_text};
use e2e::raw_client::RawClient;
use e2e::{Setup, Stack};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::conversation::{Conversation, Turn};
use crate::settled::nothing_is_left;

const CONVERSATIONS: usize = 6;
/// Then a new one takes its place: prompts are not to grow for ever.
const TURNS: usize = 8;
/// How long the agent is away.
const AWAY: Duration = Duration::from_secs(30);
/// Tokens of the long answer, one a second.
const LONG: u32 = 41;

/// Conversations that go on until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    clients: JoinSet<Result<Vec<(Instant, usize, Turn)>>>,
}

impl Load {
    fn start(stack: &Stack) -> Self {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut clients = JoinSet::new();
        for client in 0..CONVERSATIONS {
            let (stop, turns, listen) = (Arc::clone(&stop), Arc::clone(&turns), stack.listen());
            clients.spawn(async move {
                let mut all = Vec::new();
                for round in 0.. {
                    let mut conversation = Conversation::new(&format!("c{client}-{round}"), 1500);
                    for turn in 0..TURNS {
                        if stop.load(Ordering::Relaxed) {
                            return Ok(all);
                        }
                        let (id, body) = conversation.turn(1);
                        let sent = Instant::now();
                        let answer = send(listen, &Request::chat(&body).id(&id)).await?;
                        all.push((sent, turn, Turn::of(id, &answer)?));
                        turns.fetch_add(1, Ordering::Relaxed);
                        // Somebody reads the answer and thinks.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                Ok(all)
            });
        }
        Self { stop, turns, clients }
    }

    async fn more(&self, stack: &Stack, turns: usize) -> Result<()> {
        let until = self.turns.load(Ordering::Relaxed) + turns;
        let enough = async || (self.turns.load(Ordering::Relaxed) >= until).then_some(());
        stack.until(&format!("{turns} more turns"), enough).await
    }

    async fn stop(self) -> Result<Vec<(Instant, usize, Turn)>> {
        self.stop.store(true, Ordering::Relaxed);
        let clients: Result<Vec<_>> = self.clients.join_all().await.into_iter().collect();
        Ok(clients?.into_iter().flatten().collect())
    }
}

/// Starts the long answer and reads it to its end; returns its text and how long it took.
async fn long_answer(listen: std::net::SocketAddr) -> Result<(String, Duration)> {
    let mut ask = chat(&fresh_text(1500), LONG);
    ask["stream"] = json!(true);
    ask["stream_options"] = json!({"include_usage": true});
    let mut client = RawClient::connect(listen).await?;
    let start = Instant::now();
    client.post(CHAT, "long", &[], &body(&ask)).await?;
    let head = client.head().await?;
    ensure!(head.status == 200, "status {}", head.status);
    let text = String::from_utf8(client.rest().await?)?;
    Ok((text, start.elapsed()))
}

async fn columns(stack: &Stack) -> Result<BTreeMap<String, u32>> {
    let endpoints = stack.filter_state().await?.endpoints;
    Ok(endpoints.into_iter().map(|endpoint| (endpoint.name, endpoint.column)).collect())
}

async fn await_stale(stack: &Stack, value: u64) -> Result<()> {
    let is = async || {
        (stack.stat("wasmcustom.warmroute.table_stale").await.ok()? == value).then_some(())
    };
    stack.until_for(AWAY, &format!("table_stale is {value}"), is).await
}

/// Among the turns that have one before them: share that came to an engine which held some of it.
fn warm(turns: &[&(Instant, usize, Turn)]) -> f64 {
    let later: Vec<_> = turns.iter().filter(|(_, turn, _)| *turn > 0).collect();
    let hits = later.iter().filter(|(_, _, turn)| turn.cached > turn.prompt / 2).count();
    hits as f64 / later.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_minute_without_the_agent_and_a_long_answer_are_no_trouble() -> Result<()> {
    let setup =
        Setup::new(3, 2).simulator(&["--decode-ms", "1000", "--sse-keep-alive-interval", "0.3"]);
    let mut stack = Stack::start(setup).await?;
    let long = tokio::spawn(long_answer(stack.listen()));
    let load = Load::start(&stack);
    load.more(&stack, 100).await?;
    await_stale(&stack, 0).await?;
    let before = columns(&stack).await?;

    let gone = Instant::now();
    stack.agent.as_mut().context("an agent")?.process.kill();
    await_stale(&stack, 1).await?;
    // That it is away for so long is what is tested.
    tokio::time::sleep(AWAY.saturating_sub(gone.elapsed())).await;
    let back = Instant::now();
    stack.start_agent().await?;
    await_stale(&stack, 0).await?;
    load.more(&stack, 100).await?;
    assert_eq!(columns(&stack).await?, before, "the agent's restart voided what engines hold");

    // Any answer but a good one has ended its client with an error.
    let turns = load.stop().await?;
    let away: Vec<_> = turns.iter().filter(|(sent, ..)| (gone..back).contains(sent)).collect();
    let after: Vec<_> = turns.iter().filter(|(sent, ..)| *sent >= back).collect();
    assert!(away.len() > 300, "{} turns while the agent was away", away.len());
    for (when, turns) in [("while the agent is away", away), ("afterwards", after)] {
        let share = warm(&turns);
        assert!(share > 0.9, "{when} {share} of the turns went to where the conversation is");
    }

    let (text, took) = long.await??;
    // One token comes with the end of the prompt, the others a second apart.
    assert!(took >= Duration::from_secs(u64::from(LONG) - 1), "the answer took only {took:?}");
    assert!(text.ends_with("data: [DONE]\n\n"), "the answer was cut: {text}");
    assert!(text.matches(": keep-alive").count() > 40, "no comments between the tokens");
    let mut usages = text.lines().filter_map(|line| {
        serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok()?.get("usage").cloned()
    });
    let usage = usages.rfind(Value::is_object).context("a usage")?;
    assert_eq!(usage["completion_tokens"], LONG);
    let record = stack.access("long").await?;
    assert_eq!(record.completion_tokens(), Some(u64::from(LONG)));
    assert_eq!(record.cause.as_deref(), Some("completed"));
    nothing_is_left(&stack).await
}
