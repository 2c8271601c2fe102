//! Configuration that changes while the agent runs.

use crate::engine::{Engine, good};
use crate::http;
use crate::reader::{Reader, Row};
use crate::run::{Agent, Folder, LIMIT, list_of, options};
use std::os::unix::fs::symlink;

const REFUSED: &str = "\nwarmroute_agent_config_refused 1\n";

#[tokio::test]
async fn endpoints_are_added_readdressed_and_removed() {
    let engines = [Engine::up(good(1, 1)).await, Engine::up(good(1, 2)).await];
    let [one, two] = &engines;
    let folder = Folder::new();
    folder.write("pool.yaml", &list_of(&[("a", one)]));
    let mut options = options(&folder);
    // The old one has all the time it needs to be replaced.
    options.fleet.linger = LIMIT;
    let agent = Agent::start(options).await;
    let mut reader = Reader::new(agent.address);
    reader.until("a", |r| r.get("a").and_then(Row::waiting) == Some(1.0)).await;
    let id = reader.get("a").unwrap().record.id;

    folder.write("pool.yaml", &list_of(&[("a", two)]));
    let moved = |r: &Reader| r.rows.values().any(|row| row.waiting() == Some(2.0));
    let always = |r: &Reader| assert!(!r.rows.is_empty(), "requests in between find the old one");
    reader.until_with("a at its new address", always, moved).await;
    reader.until("the old one is gone", |r| r.rows.len() == 1).await;
    assert_ne!(reader.get("a").unwrap().record.id, id);

    folder.write("pool.yaml", &list_of(&[("a", two), ("b", one)]));
    reader.until("b", |r| r.get("b").and_then(Row::waiting) == Some(1.0)).await;

    folder.write("pool.yaml", &list_of(&[("b", one)]));
    reader.until("a gone", |r| r.get("a").is_none()).await;
    let text = http::text(agent.address, "/metrics").await;
    assert!(!text.contains("default/a") && text.contains("default/b"), "{text}");
    assert_eq!(reader.snapshots, 1);
}

#[tokio::test]
async fn labels_change_without_a_new_endpoint() {
    let engine = Engine::up(good(1, 1)).await;
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &engine)])).await;
    let mut reader = Reader::new(agent.address);
    reader.until("a", |r| r.get("a").is_some()).await;
    let before = reader.get("a").unwrap().record.clone();
    let labelled = list_of(&[("a", &engine)]).replace('}', ", labels: {role: decode}}");
    folder.write("pool.yaml", &labelled);
    reader.until("label", |r| !r.get("a").unwrap().record.labels.is_empty()).await;
    let after = &reader.get("a").unwrap().record;
    assert_eq!(after.labels, [("role".to_owned(), "decode".to_owned())]);
    assert_eq!((after.id, after.generation), (before.id, before.generation));
}

#[tokio::test]
async fn a_bad_change_is_refused_whole_and_the_last_good_one_stays() {
    let engines = [Engine::up(good(1, 1)).await, Engine::up(good(1, 2)).await];
    let [a, b] = &engines;
    let folder = Folder::new();
    let good_list = list_of(&[("a", a)]);
    let agent = Agent::over(&folder, &good_list).await;
    let mut reader = Reader::new(agent.address);
    reader.until("a", |r| r.get("a").is_some()).await;
    let both = list_of(&[("a", a), ("b", b)]);
    let bad = [
        String::new(),
        "endpoints:\n".to_owned(),
        both.replace("port", "prot"),
        both.replace("name: b", "name: a"),
        both[..both.len() - 8].to_owned(),
    ];
    for text in bad {
        folder.write("pool.yaml", &text);
        agent.until("/metrics", &text, |metrics| metrics.contains(REFUSED)).await;
        reader.poll(0).await;
        assert_eq!(reader.rows.len(), 1, "{text}");
        folder.write("pool.yaml", &good_list);
        agent.until("/metrics", "good again", |metrics| !metrics.contains(REFUSED)).await;
    }
    std::fs::remove_file(folder.path("pool.yaml")).unwrap();
    agent.until("/metrics", "file gone", |metrics| metrics.contains(REFUSED)).await;
    folder.write("pool.yaml", &both);
    let always = |r: &Reader| assert!(r.get("a").is_some(), "never emptied");
    reader.until_with("b", always, |r| r.get("b").is_some()).await;
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_read() {
    let engines = [Engine::up(good(1, 1)).await, Engine::up(good(1, 2)).await];
    let folder = Folder::new();
    // As the kubelet lays it out: visible names point through `..data` into a dated folder.
    let version = |name: &str, text: &str| {
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/pool.yaml"), text);
    };
    version("..1", &list_of(&[("a", &engines[0])]));
    symlink("..1", folder.path("..data")).unwrap();
    symlink("..data/pool.yaml", folder.path("pool.yaml")).unwrap();
    let mut options = options(&folder);
    options.config = folder.0.clone();
    let agent = Agent::start(options).await;
    let mut reader = Reader::new(agent.address);
    reader.until("a", |r| r.get("a").is_some()).await;

    version("..2", &list_of(&[("b", &engines[1])]));
    symlink("..2", folder.path("..data_tmp")).unwrap();
    std::fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    reader.until("b", |r| r.get("b").is_some() && r.get("a").is_none()).await;
}

#[tokio::test]
async fn fifty_flapping_endpoints_end_as_configured() {
    let engines: Vec<_> = (0..50).map(|_| Engine::down(good(1, 0))).collect();
    let names: Vec<_> = (0..50).map(|n| format!("r{n}")).collect();
    let pick = |keep: &dyn Fn(usize) -> bool| {
        let kept: Vec<_> =
            (0..50).filter(|n| keep(*n)).map(|n| (names[n].as_str(), &engines[n])).collect();
        (kept.len(), list_of(&kept))
    };
    let folder = Folder::new();
    let agent = Agent::over(&folder, &pick(&|_| true).1).await;
    let mut reader = Reader::new(agent.address);
    for round in 0..12 {
        let (count, text) = pick(&|n| (n + round) % 3 != 0);
        folder.write("pool.yaml", &text);
        reader.until("this round", |r| r.rows.len() == count).await;
        let wanted: Vec<_> = (0..50).filter(|n| (n + round) % 3 != 0).collect();
        let as_wanted = |r: &Reader| wanted.iter().all(|n| r.get(&names[*n]).is_some());
        reader.until("this set", as_wanted).await;
    }
    let stopped = tokio::time::timeout(LIMIT, agent.stop()).await;
    stopped.unwrap().unwrap();
}
