//! The stream: first table, long polls, resuming, paging, several readers.

use crate::engine::{Engine, good};
use crate::http;
use crate::reader::{Reader, Row};
use crate::run::{Agent, Folder, LIMIT, list, list_of, options};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use warmroute_shared_state::stream::{AgentOp, PAGE_BYTES, Page, PageKind, Position};

#[tokio::test]
async fn there_is_no_table_before_it_is_full() {
    let (quick, mut late) = (Engine::up(good(1, 0)).await, Engine::down(good(1, 0)));
    late.start().await;
    late.set(crate::engine::Mode::Hang);
    let folder = Folder::new();
    folder.write("pool.yaml", &list_of(&[("quick", &quick), ("late", &late)]));
    let mut options = options(&folder);
    options.fleet.scrape.timeout = Duration::from_secs(3600);
    let agent = Agent::start(options).await;
    let known = |text: &str| text.contains("\"on_stream\": true");
    agent.until("/v1/endpoints", "quick is known", known).await;
    assert_eq!(http::get(agent.address, "/readyz").await.0, 503);
    assert_eq!(http::get(agent.address, "/healthz").await.0, 200);
    assert_eq!(http::get(agent.address, "/v1/stream").await.0, 503);
    late.set(good(1, 0));
    late.stop().await;
    late.start().await;
    let mut reader = Reader::new(agent.address);
    reader.until("both", |r| !r.rows.is_empty()).await;
    assert_eq!(reader.rows.len(), 2, "the first table is the full one");
    assert_eq!(http::get(agent.address, "/readyz").await.0, 200);
}

#[tokio::test]
async fn an_empty_pool_is_a_full_table() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    agent.until("/readyz", "ready", |text| text == "ok\n").await;
    let mut reader = Reader::new(agent.address);
    reader.poll(0).await;
    assert_eq!((reader.rows.len(), reader.snapshots), (0, 1));
}

#[tokio::test]
async fn a_poll_waits_for_news_and_no_longer_than_asked() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    let mut reader = Reader::new(agent.address);
    reader.until("first table", |r| r.position.is_some()).await;
    let page = reader.fetch(0, 5).await.unwrap();
    assert_eq!((page.ops.len(), Some(page.position)), (0, reader.position));

    let engine = Engine::down(good(1, 0));
    let waiting = async {
        assert!(reader.poll(30_000).await > 0);
        assert!(reader.get("a").is_some());
    };
    let adding = async {
        let waits = "warmroute_agent_stream_readers 1";
        agent.until("/metrics", "the poll is held", |text| text.contains(waits)).await;
        folder.write("pool.yaml", &list_of(&[("a", &engine)]));
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(waiting, adding) }).await.unwrap();
}

#[tokio::test]
async fn readers_resume_where_they_stood_each_at_its_own_pace() {
    let engines = [Engine::up(good(1, 1)).await, Engine::up(good(1, 2)).await];
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engines[0])])).await;
    let mut slow = Reader::new(agent.address);
    slow.until("first table", |r| r.get("a").is_some()).await;
    let mut quick = Reader::new(agent.address);
    folder.write("pool.yaml", &list_of(&[("a", &engines[0]), ("b", &engines[1])]));
    quick.until("b", |r| r.get("b").is_some()).await;
    folder.write("pool.yaml", &list_of(&[("b", &engines[1])]));
    quick.until("a gone", |r| r.get("a").is_none()).await;

    slow.poll(0).await;
    assert_eq!(slow.snapshots, 1, "it missed an addition and a removal, and got them as a delta");
    let names = |r: &Reader| r.rows.values().map(|row| row.record.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&slow), ["default/b"]);
    assert_eq!(names(&slow), names(&quick));
}

#[tokio::test]
async fn a_position_that_is_not_the_agents_gets_a_snapshot() {
    let engine = Engine::up(good(1, 1)).await;
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engine)])).await;
    let mut reader = Reader::new(agent.address);
    reader.until("load", |r| r.get("a").and_then(Row::waiting).is_some()).await;
    let Position { epoch, seq } = reader.position.unwrap();
    for position in [Position { epoch: epoch + 1, seq }, Position { epoch, seq: seq + 1_000_000 }] {
        let mut lost = Reader::new(agent.address);
        lost.position = Some(position);
        lost.poll(30_000).await;
        assert_eq!((lost.snapshots, lost.rows.len()), (1, 1), "{position:?}");
    }
    for bad in ["epoch=x&seq=1", "page=-1", "wait_ms=1e9"] {
        assert_eq!(http::get(agent.address, &format!("/v1/stream?{bad}")).await.0, 400, "{bad}");
    }
}

/// A list whose endpoints have 8 kB of labels each, on ports that nobody listens on.
fn large(endpoints: &[(String, SocketAddr)]) -> String {
    let mut text = "endpoints:\n".to_owned();
    for (name, address) in endpoints {
        let (ip, port) = (address.ip(), address.port());
        writeln!(text, "- name: {name}\n  address: {ip}\n  port: {port}\n  labels:").unwrap();
        for label in 0..16 {
            writeln!(text, "    l{label}: {}", "v".repeat(500)).unwrap();
        }
    }
    text
}

#[tokio::test]
async fn a_large_table_comes_in_pages_that_belong_together() {
    let engines: Vec<_> = (0..150).map(|_| Engine::down(good(1, 0))).collect();
    let endpoints: Vec<_> = (0..150).map(|n| (format!("r{n}"), engines[n].address)).collect();
    let folder = Folder::new();
    std::fs::create_dir(folder.path("conf")).unwrap();
    for (n, part) in endpoints.chunks(50).enumerate() {
        folder.write(&format!("conf/{n}.yaml"), &large(part));
    }
    let mut options = options(&folder);
    options.config = folder.path("conf");
    let agent = Agent::start(options).await;
    agent.until("/readyz", "ready", |text| text == "ok\n").await;

    let mut slow = Reader::new(agent.address);
    let first = slow.fetch(0, 0).await.unwrap();
    let PageKind::Snapshot { page: 0, pages } = first.kind else { panic!("{:?}", first.kind) };
    assert!(pages >= 2, "{pages}");
    slow.position = Some(first.position);
    // Between its pages the table changes and others read: its snapshot stays what it was.
    folder.write("conf/0.yaml", &list(&[]));
    let mut quick = Reader::new(agent.address);
    quick.until("fewer", |r| r.rows.len() == 100).await;
    let endpoints =
        |page: &Page| page.ops.iter().filter(|op| matches!(op, AgentOp::Endpoint(_))).count();
    let mut seen = endpoints(&first);
    for n in 1..pages {
        let page = slow.fetch(n, 0).await.unwrap();
        assert_eq!(
            (page.kind, page.position),
            (PageKind::Snapshot { page: n, pages }, first.position)
        );
        assert!(page.encode().len() <= PAGE_BYTES + 100);
        seen += endpoints(&page);
    }
    assert_eq!(seen, 150);
    // Asking for a page of a snapshot that never was begins a whole one.
    slow.position = Some(Position { epoch: 1, seq: 1 });
    let other = slow.fetch(1, 0).await.unwrap();
    assert!(matches!(other.kind, PageKind::Snapshot { page: 0, .. }));
    slow.until("as the other", |r| r.rows.len() == 100).await;
}

#[tokio::test]
async fn stopping_answers_the_polls_that_wait() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    let mut reader = Reader::new(agent.address);
    reader.until("first table", |r| r.position.is_some()).await;
    let address = agent.address;
    let held = tokio::spawn(async move { reader.fetch(0, 30_000).await });
    let waits = "warmroute_agent_stream_readers 1";
    agent.until("/metrics", "the poll is held", |text| text.contains(waits)).await;
    agent.stop().await.unwrap();
    assert_eq!(held.await.unwrap().unwrap().ops, []);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
