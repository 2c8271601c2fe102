//! Twenty thousand mixed requests, and what the ledger has of them.

pub mod plan;
pub mod verdict;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::raw_client::RawClient;
use e2e::{Setup, Stack};
use rusqlite::{Connection, OpenFlags};
use tokio::task::JoinSet;

use crate::bed::{WORKERS, key, tenant};
use plan::{Call, Cut};
use verdict::{Counted, Ledger, Row, Seen};

const REQUESTS: usize = 20_000;
const RESETS: usize = 1_000;
const CLIENTS: usize = 800;
/// All requests, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(400);
/// Until the last row is there: a batch whose answer the reload took goes again after ten seconds.
const LAST_ROW: Duration = Duration::from_secs(30);

/// A field of the plugin's configuration, and what the push makes of it.
const BEFORE: &str = r#", "max_body_bytes": 1000000"#;
const AFTER: &str = r#", "max_body_bytes": 2000000"#;

/// Sends everything, with a restart of the agent and a reload of the filter in the middle, and compares.
///
/// # Errors
/// When something does not start or end.
pub async fn measure() -> Result<Ledger> {
    let mut stack = start().await?;
    let calls = Arc::new(plan::plan(REQUESTS, RESETS, &mut fastrand::Rng::new()));
    let next = Arc::<AtomicUsize>::default();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (calls, next, listen) = (Arc::clone(&calls), Arc::clone(&next), stack.listen());
        clients.spawn(async move {
            let mut seen = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(call) = calls.get(at) else { break seen };
                seen.push((at, send(listen, call).await));
            }
        });
    }
    let sent = async |stack: &Stack, count: usize| {
        let enough = async || (next.load(Ordering::Relaxed) >= count).then_some(());
        stack.until_for(LIMIT, &format!("{count} requests"), enough).await
    };
    sent(&stack, REQUESTS / 4).await?;
    stack.start_agent().await?;
    sent(&stack, REQUESTS / 2).await?;
    stack.push_listener_taken(|listener| listener.replace(BEFORE, AFTER)).await?;
    sent(&stack, REQUESTS).await?;
    let mut seen = vec![Seen::Failed("not sent".to_owned()); calls.len()];
    for (at, one) in clients.join_all().await.into_iter().flatten() {
        if let Seen::Failed(why) = &one {
            eprintln!("{:?}: {why}", calls[at]);
        }
        seen[at] = one;
    }
    let engines = counted(&stack).await?;
    let file = stack.dir().join("usage.sqlite");
    let complete = async || {
        let rows = rows(&file).ok()?;
        engines.keys().all(|id| rows.contains_key(id)).then_some(())
    };
    // What is missing then is the finding.
    let _ = stack.until_for(LAST_ROW, "a row of each request", complete).await;
    Ok(Ledger {
        agent_restarts: 1,
        reloads: 1,
        ..verdict::judge(&calls, &seen, &rows(&file)?, &engines)
    })
}

async fn start() -> Result<Stack> {
    let exact = "  accounting: {streamDisconnect: bill_exact}";
    let documents: String = plan::TENANTS.iter().map(|name| tenant(name, exact)).collect();
    let [second, adapter] = plan::OTHER_MODELS;
    let mut setup = Setup::new(4, WORKERS).document(&documents).simulator(&[
        "--model",
        second,
        "--lora",
        adapter,
        "--record-requests",
        "100000",
        // Real time, and slow: an engine goes on until it hears that the client left, and what it then writes is
        // nobody's.
        "--decode-ms",
        "500",
    ]);
    setup.listener_file = true;
    setup.envoy_arguments = ["--drain-time-s", "10"].map(str::to_owned).to_vec();
    BEFORE.clone_into(&mut setup.plugin_config_extra);
    Stack::start(setup).await
}

async fn send(listen: SocketAddr, call: &Call) -> Seen {
    exchange(listen, call).await.unwrap_or_else(|error| Seen::Failed(format!("{error:#}")))
}

async fn exchange(listen: SocketAddr, call: &Call) -> Result<Seen> {
    let mut client = RawClient::connect(listen).await.context("connect")?;
    let key = format!("authorization: Bearer {}", key(call.tenant));
    client.post(call.path, &call.id, &[&key], call.body.as_bytes()).await.context("post")?;
    if call.cut == Cut::Early {
        client.reset();
        return Ok(Seen::Left);
    }
    let status = client.head().await.context("head")?.status;
    let Cut::After(pieces) = call.cut else {
        client.rest().await.context("body")?;
        return Ok(Seen::Answered(status));
    };
    for _ in 0..pieces {
        if client.data().await.context("a piece")?.is_none() {
            return Ok(Seen::Answered(status));
        }
    }
    client.reset();
    Ok(Seen::Left)
}

/// What the engines counted, by `x-request-id`, once none of it is under way.
async fn counted(stack: &Stack) -> Result<HashMap<String, Counted>> {
    let ended = async || {
        let engines = stack.engines().await.ok()?;
        let all = || engines.iter().flat_map(|engine| &engine.requests);
        all().all(|request| request.outcome != "in_flight").then(|| {
            all()
                .filter_map(|request| {
                    let counted = Counted {
                        input: request.prompt_tokens,
                        cached: request.cached_tokens,
                        output: request.completion_tokens,
                    };
                    Some((request.request_id.clone()?, counted))
                })
                .collect()
        })
    };
    stack.until("the end of all requests at the engines", ended).await
}

/// The ledger's rows by `x-request-id`.
fn rows(file: &Path) -> Result<HashMap<String, Vec<Row>>> {
    let ledger = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .with_context(|| file.display().to_string())?;
    ledger.busy_timeout(Duration::from_secs(5))?;
    let mut query =
        ledger.prepare("SELECT request_id, tenant, model, input, cached, output FROM usage")?;
    let mut rows: HashMap<String, Vec<Row>> = HashMap::new();
    let all = query.query_map([], |row| {
        let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
        let of_row = Row {
            tenant: row.get(1)?,
            model: row.get(2)?,
            input: count(3)?,
            cached: count(4)?,
            output: count(5)?,
        };
        Ok((row.get(0)?, of_row))
    })?;
    for row in all {
        let (id, row) = row?;
        rows.entry(id).or_default().push(row);
    }
    Ok(rows)
}
