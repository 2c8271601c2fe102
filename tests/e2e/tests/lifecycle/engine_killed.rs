//! An engine dies under load, and comes back.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::access_log::{self, Access};
use e2e::client::CHAT;
use e2e::prompts::body;
use e2e::raw_client::RawClient;
use e2e::{Setup, Stack};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::conversation::{Conversation, go_on};
use crate::settled::{engine_ports, nothing_is_left};

const CLIENTS: usize = 8;
const TURNS: usize = 6;

/// What the clients are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    GoOn,
    /// What was sent before this moment and has no answer never gets one.
    GiveUp(Instant),
    Stop,
}

/// One request of the load.
struct Asked {
    id: String,
    sent: Instant,
    /// Why it failed, if it did.
    failure: Option<String>,
}

/// Conversations, every other turn of them a stream.
struct Load {
    orders: watch::Sender<Order>,
    over: Arc<AtomicUsize>,
    clients: JoinSet<Vec<Asked>>,
}

impl Load {
    fn start(listen: SocketAddr, name: &str) -> Self {
        let (orders, told) = watch::channel(Order::GoOn);
        let over = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (told, over) = (told.clone(), Arc::clone(&over));
            let name = format!("{name}-{client}");
            clients.spawn(async move { keep_asking(listen, &name, told, &over).await });
        }
        Self { orders, over, clients }
    }

    async fn more(&self, stack: &Stack, requests: usize) -> Result<()> {
        let until = self.over.load(Ordering::Relaxed) + requests;
        let enough = async || (self.over.load(Ordering::Relaxed) >= until).then_some(());
        stack.until(&format!("{requests} more requests"), enough).await
    }

    async fn stop(self) -> Vec<Asked> {
        self.orders.send_replace(Order::Stop);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}

async fn keep_asking(
    listen: SocketAddr,
    name: &str,
    mut told: watch::Receiver<Order>,
    over: &AtomicUsize,
) -> Vec<Asked> {
    let mut all = Vec::new();
    for round in 0.. {
        let mut conversation = Conversation::new(&format!("{name}-{round}"), 1000);
        for turn in 0..TURNS {
            if *told.borrow() == Order::Stop {
                return all;
            }
            let (id, mut ask) = conversation.turn(8);
            ask["stream"] = json!(turn % 2 == 1);
            let sent = Instant::now();
            let body = body(&ask);
            let given_up = |order: &Order| matches!(order, Order::GiveUp(at) if sent < *at);
            let hopeless = async { told.wait_for(given_up).await.map(drop) };
            let failure = tokio::select! {
                failure = exchange(listen, &id, &body) => failure,
                _ = hopeless => Some("no answer".to_owned()),
            };
            all.push(Asked { id, sent, failure });
            over.fetch_add(1, Ordering::Relaxed);
        }
    }
    all
}

async fn exchange(listen: SocketAddr, id: &str, body: &[u8]) -> Option<String> {
    match answer(listen, id, body).await {
        Ok((200, text)) if text.contains("\"error\"") => Some(text),
        Ok((200, text)) if text.ends_with("data: [DONE]\n\n") || text.ends_with('}') => None,
        Ok((status, text)) => Some(format!("status {status}: {text}")),
        Err(error) => Some(error.to_string()),
    }
}

async fn answer(listen: SocketAddr, id: &str, body: &[u8]) -> io::Result<(u16, String)> {
    let mut client = RawClient::connect(listen).await?;
    client.post(CHAT, id, &[], body).await?;
    let head = client.head().await?;
    let text = client.rest().await?;
    Ok((head.status, String::from_utf8_lossy(&text).into_owned()))
}

/// Conversations that only this engine holds.
async fn conversations_of(stack: &Stack, engine: &str, name: &str) -> Result<Vec<Conversation>> {
    let mut found = Vec::new();
    for number in 0..200 {
        let mut conversation = Conversation::new(&format!("{name}-old-{number}"), 1000);
        if go_on(stack, &mut conversation).await?.engine == engine {
            found.push(conversation);
        }
        if found.len() == 5 {
            return Ok(found);
        }
    }
    anyhow::bail!("{engine} got {} of 200 conversations", found.len())
}

/// A stream that is under way at the engine.
async fn doomed(stack: &Stack, mut conversation: Conversation, engine: &str) -> Result<RawClient> {
    let (id, mut ask) = conversation.turn(2000);
    ask["stream"] = json!(true);
    let mut client = RawClient::connect(stack.listen()).await?;
    client.post(CHAT, &id, &[], &body(&ask)).await?;
    let head = client.head().await?;
    ensure!(head.header("x-sim-endpoint") == Some(engine), "{id} went to another engine");
    client.data().await?.context("a token")?;
    Ok(client)
}

fn records(stack: &Stack) -> BTreeMap<String, Access> {
    let records = access_log::read(&stack.dir().join(access_log::FILE)).into_iter();
    records.filter_map(|record| Some((record.request_id.clone()?, record))).collect()
}

/// Kills engine `victim` by this fault and brings it back.
async fn kill_and_restart(stack: &Stack, victim: usize, fault: &str) -> Result<()> {
    let engine = stack.simulator.replicas[victim].to_string();
    let mut old = conversations_of(stack, &engine, fault).await?;
    let last = old.pop().context("a conversation")?;
    let mut stream = doomed(stack, last, &engine).await?;
    let load = Load::start(stack.listen(), fault);
    load.more(stack, 80).await?;

    stack.simulator.fault(&json!({"replica": victim, "fault": fault})).await?;
    let dead = Instant::now();
    let noticed = async || {
        let state = stack.filter_state().await.ok()?;
        state.endpoints.iter().any(|e| e.address == engine && !e.ready).then_some(())
    };
    stack.until("the filter knows that the engine is out", noticed).await?;
    load.more(stack, 80).await?;
    load.orders.send_replace(Order::GiveUp(dead));
    match fault {
        "die" => stream.reset(),
        "crash_midstream" => {
            let rest = String::from_utf8(stream.rest().await?)?;
            assert!(rest.contains("\"error\""), "no error in the stream: {rest}");
        }
        _ => assert!(stream.rest().await.is_err(), "the stream came to a proper end"),
    }
    load.more(stack, 40).await?;

    stack.simulator.fault(&json!({"replica": victim, "fault": "restart"})).await?;
    stack.wait_ready(stack.setup.replicas).await?;
    for conversation in &mut old {
        let turn = go_on(stack, conversation).await?;
        assert_eq!(turn.cached, 0, "{fault}: an engine that is new had a prompt cached");
        let record = stack.access(&turn.id).await?;
        assert_eq!(record.matched_tokens(), Some(0), "{fault}: believed what the dead engine held");
    }
    let used =
        async || stack.engines().await.ok()?.get(victim).filter(|e| e.arrived >= 10).map(drop);
    stack.until("the engine is used again", used).await?;

    let asked = load.stop().await;
    nothing_is_left(stack).await?;
    let last = asked.last().context("requests")?;
    stack.access(&last.id).await?;
    let records = records(stack);
    for Asked { id, sent, failure } in &asked {
        let Some(failure) = failure else { continue };
        let record = records.get(id).with_context(|| format!("no record of {id}"))?;
        assert!(*sent < dead, "{fault}: {id} was sent to a dead engine: {failure}; {record:?}");
        assert_eq!(record.endpoint.as_deref(), Some(engine.as_str()), "{fault}: {failure}");
        assert_ne!(record.cause.as_deref(), Some("completed"), "{fault}: {failure}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_dead_engine_had_in_flight_fails_and_it_comes_back_cold() -> Result<()> {
    let setup = Setup::new(4, 2).simulator(&["--ports", &engine_ports::<4>()?]);
    let stack = Stack::start(setup).await?;
    kill_and_restart(&stack, 0, "die").await?;
    kill_and_restart(&stack, 1, "crash_midstream_silent").await?;
    kill_and_restart(&stack, 2, "crash_midstream").await
}
