//! The ledger as a whole, and what its parts' tests share.

use super::report::{By, Filter, Group, Period, Report, report};
use super::store::open_to_read;
use super::writer::Stored;
use super::{Ledger, NotTaken, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use warmroute_shared_state::usage_record::batch::{Batch, BatchHead};
use warmroute_shared_state::usage_record::{EndCause, FlowOutcome, UsageRecord};

/// A usual record; `number` tells it apart.
pub(crate) fn record(number: u64) -> UsageRecord {
    UsageRecord {
        id: (u64::MAX - 5, number),
        at_ms: 1_790_000_000_000 + number,
        request_id: format!("request-{number}"),
        tenant: "tenant-a".into(),
        fairness_id: "fair-a".into(),
        model: "llama-70b".into(),
        target_model: "llama-70b-v2".into(),
        pool: "llama".into(),
        endpoint: "10.0.0.1:8000".into(),
        attempts: 1,
        priority: 100,
        status: 200,
        input_tokens: 3100,
        cached_tokens: 2048,
        output_tokens: 201,
        reasoning_tokens: 20,
        exact: true,
        reserved_tokens: 4024,
        charged_tokens: 3301,
        cause: EndCause::Natural,
        dropped: String::new(),
        flow: Some(FlowOutcome::Dispatched),
        queue_ms: 12,
        ttft_ms: Some(200),
        duration_ms: 4200,
        streamed: true,
        request_bytes: 12_400,
        response_bytes: 52_000,
    }
}

fn settings(file: &Path) -> Settings {
    Settings { file: Some(file.to_owned()), named: true, ..Settings::off() }
}

fn ledger(file: &Path) -> Ledger {
    Ledger::start(settings(file), || 0).unwrap()
}

fn batch(records: Vec<UsageRecord>) -> Batch {
    Batch { head: BatchHead { incarnation: 1, seq: 1 }, records }
}

async fn take(ledger: &Ledger, numbers: &[u64]) -> Result<Stored, NotTaken> {
    let records = numbers.iter().map(|number| record(*number)).collect();
    ledger.take(&ledger.place().unwrap(), batch(records)).await
}

/// All that a file holds.
pub(super) fn whole(file: &Path, by: &[By]) -> Report {
    let period = Period::new(None, None, 0).unwrap();
    let filter = Filter { tenant: None, model: None, period, max_rows: usize::MAX };
    report(&open_to_read(file).unwrap(), &filter, by, None).unwrap()
}

fn total(file: &Path) -> Group {
    whole(file, &[]).total
}

fn counted(ledger: &Ledger, line: &str) -> bool {
    ledger.counted().encode().unwrap().lines().any(|each| each == line)
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/usage.sqlite");
    (folder, file)
}

#[tokio::test]
async fn each_record_is_stored_and_counted_once_in_whatever_order_it_comes() {
    let (_folder, file) = folder();
    let ledger = ledger(&file);
    let stored = |fresh, duplicate| Ok(Stored { fresh, duplicate });
    assert_eq!(take(&ledger, &[2, 1]).await, stored(2, 0));
    assert_eq!(take(&ledger, &[3, 2, 3, 1]).await, stored(1, 3), "also twice in a batch");
    assert_eq!(take(&ledger, &[]).await, stored(0, 0));
    let sums = total(&file);
    assert_eq!((sums.requests, sums.input, sums.charged), (3, 9300, 9903));
    for line in [
        "warmroute_agent_ledger_records_total{result=\"stored\"} 3",
        "warmroute_agent_ledger_records_total{result=\"duplicate\"} 3",
        "warmroute_agent_ledger_batches_total{result=\"stored\"} 3",
        "warmroute_agent_tenant_tokens_total{tenant=\"tenant-a\",model=\"llama-70b\",kind=\"output\"} 603",
    ] {
        assert!(counted(&ledger, line), "{line}");
    }
}

/// The commit is done, the answer is lost: the filter sends again, to the next run of the agent.
#[tokio::test]
async fn an_agent_that_comes_back_knows_what_it_stored() {
    let (_folder, file) = folder();
    let first = ledger(&file);
    take(&first, &[1, 2]).await.unwrap();
    // Not stopped: as after a kill, the file is as the last commit left it.
    let second = ledger(&file);
    assert_eq!(take(&second, &[1, 2, 3]).await, Ok(Stored { fresh: 1, duplicate: 2 }));
    second.stop().await;
    assert_eq!(total(&file).requests, 3);
    assert_eq!(take(&second, &[4]).await, Err(NotTaken::Failed), "it is stopped");
    assert_eq!(take(&first, &[4]).await, Ok(Stored { fresh: 1, duplicate: 0 }));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_tried_again() {
    let (folder, file) = folder();
    // A file where the folder should be.
    std::fs::write(folder.path().join("deep"), "x").unwrap();
    let ledger = ledger(&file);
    assert_eq!(take(&ledger, &[1]).await, Err(NotTaken::Failed));
    std::fs::remove_file(folder.path().join("deep")).unwrap();
    assert!(take(&ledger, &[1]).await.is_ok());
    ledger.stop().await;

    std::fs::write(&file, "this is no database, and longer than the head of one. ".repeat(20))
        .unwrap();
    let ledger = self::ledger(&file);
    assert_eq!(take(&ledger, &[1]).await, Err(NotTaken::Failed));
    assert!(counted(&ledger, "warmroute_agent_ledger_batches_total{result=\"failed\"} 1"));
    assert!(!counted(&ledger, "warmroute_agent_ledger_records_total{result=\"stored\"} 1"));
    std::fs::rename(&file, file.with_extension("broken")).unwrap();
    assert_eq!(take(&ledger, &[1]).await, Ok(Stored { fresh: 1, duplicate: 0 }));
}

#[tokio::test]
async fn without_a_file_records_are_counted_only() {
    let ledger = Ledger::start(Settings::off(), || 0).unwrap();
    assert_eq!(take(&ledger, &[1, 2]).await, Ok(Stored { fresh: 2, duplicate: 0 }));
    assert!(counted(&ledger, "warmroute_agent_ledger_records_total{result=\"stored\"} 2"));
    assert_eq!(ledger.file(), None);
}

#[tokio::test]
async fn a_file_that_nobody_named_is_made_with_the_first_record() {
    let (_folder, file) = folder();
    let ledger = Ledger::start(Settings { named: false, ..settings(&file) }, || 0).unwrap();
    assert!(!file.exists());
    take(&ledger, &[1]).await.unwrap();
    assert!(file.exists());
}

#[tokio::test]
async fn only_so_many_batches_are_read_at_once() {
    let ledger = Ledger::start(Settings::off(), || 0).unwrap();
    let places: Vec<_> = std::iter::from_fn(|| ledger.place().ok()).collect();
    assert_eq!(places.len(), super::BATCHES_AT_ONCE);
    assert_eq!(ledger.place().map(drop), Err(NotTaken::Busy));
    drop(places);
    assert!(ledger.place().is_ok());
    assert!(counted(&ledger, "warmroute_agent_ledger_batches_total{result=\"busy\"} 2"));
}

#[tokio::test]
async fn old_records_go_while_new_ones_come() {
    let (_folder, file) = folder();
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let keep = Duration::from_secs(3600);
    let look_every = Duration::from_millis(10);
    let settings = Settings { keep, look_every, ..settings(&file) };
    let ledger = Ledger::start(settings, move || clock.load(Ordering::Relaxed)).unwrap();
    let numbers: Vec<_> = (1..=4096).collect();
    take(&ledger, &numbers).await.unwrap();
    now.store(record(1000).at_ms + 3_600_000, Ordering::Relaxed);
    let pruned = async {
        while total(&file).requests > 3097 {
            take(&ledger, &[4096]).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), pruned).await.expect("old records go");
    assert_eq!(total(&file).requests, 3097, "those from record 1000 on stay");
    assert!(counted(&ledger, "warmroute_agent_ledger_removed_records_total 999"));
}

/// Four VMs that send everything twice, and a reader all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_records_are_stored_once_and_read_meanwhile() {
    const BATCH: u64 = 500;
    let (_folder, file) = folder();
    let ledger = Arc::new(ledger(&file));
    // There is a file to read from here on.
    take(&ledger, &[]).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (file, done) = (file.clone(), Arc::clone(&done));
        move || {
            let (mut reads, mut last) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let sums = total(&file);
                assert!(sums.requests >= last, "nothing is unsaid");
                assert_eq!(sums.requests % BATCH, 0, "no half batches");
                assert_eq!(sums.input, sums.requests * 3100);
                (reads, last) = (reads + 1, sums.requests);
            }
            reads
        }
    });
    let senders: Vec<_> = (0..4)
        .map(|vm| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                for first in (0..5000).step_by(BATCH as usize) {
                    for _ in 0..2 {
                        let numbers = first..first + BATCH;
                        let of_vm = |number| UsageRecord { id: (vm, number), ..record(number) };
                        let records = batch(numbers.map(of_vm).collect());
                        ledger.take(&ledger.place().unwrap(), records).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
    let sums = total(&file);
    assert_eq!((sums.requests, sums.output), (20_000, 20_000 * 201));
    assert!(counted(&ledger, "warmroute_agent_ledger_records_total{result=\"duplicate\"} 20000"));
}

#[tokio::test]
async fn what_is_dropped_is_counted_by_reason_and_the_last_minute_is_known() {
    let ledger = Ledger::start(Settings::off(), || 77_000).unwrap();
    let dropped = "rejected-saturated".to_owned();
    let (status, cause, flow) = (429, EndCause::Rejected, Some(FlowOutcome::RejectedCapacity));
    let refused = UsageRecord { status, cause, flow, dropped, ..record(2) };
    let stored = ledger.take(&ledger.place().unwrap(), batch(vec![record(1), refused])).await;
    assert_eq!(stored, Ok(Stored { fresh: 2, duplicate: 0 }));
    let drops =
        "warmroute_agent_tenant_drops_total{tenant=\"tenant-a\",reason=\"rejected-saturated\"} 1";
    assert!(counted(&ledger, drops));
    let window = ledger.counted().recent.window(77_000);
    assert_eq!(window.tokens["tenant-a"], 3301);
    let waits = &window.waits[&("llama".to_owned(), Some(100))];
    assert_eq!((waits.count(), waits.percentile(99)), (1, 12));
}
