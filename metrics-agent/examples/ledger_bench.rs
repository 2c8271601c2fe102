//! How many usage records the ledger stores in a second, and how long a report takes.
//!
//! `cargo run --profile native -p warmroute-agent --example ledger_bench -- FOLDER [RECORDS]`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not the agent")]

use std::path::Path;
use std::time::Instant;
use warmroute_agent::ledger::report::{By, Filter, Period, report};
use warmroute_agent::ledger::store::{Store, open_to_read};
use warmroute_shared_state::usage_record::batch::{Batch, BatchHead, BatchWriter};
use warmroute_shared_state::usage_record::{EndCause, FlowOutcome, UsageRecord};

fn record(number: u64) -> UsageRecord {
    UsageRecord {
        id: (number % 4, number),
        at_ms: 1_790_000_000_000 + number,
        request_id: format!("6f9c1d2e-58b1-4d52-9f0e-{number:012}"),
        tenant: format!("tenant-{}", number % 20),
        fairness_id: format!("tenant-{}", number % 20),
        model: format!("llama-{}", number % 3),
        target_model: format!("llama-{}", number % 3),
        pool: "llama-70b-bf16".into(),
        endpoint: format!("10.0.0.{}:8000", number % 16),
        attempts: 1,
        priority: 0,
        status: 200,
        input_tokens: number % 4000,
        cached_tokens: number % 1000,
        output_tokens: number % 700,
        reasoning_tokens: 0,
        exact: true,
        reserved_tokens: 4096,
        charged_tokens: number % 4700,
        cause: EndCause::Natural,
        dropped: String::new(),
        flow: Some(FlowOutcome::Dispatched),
        queue_ms: number % 90,
        ttft_ms: Some(number % 400),
        duration_ms: number % 9000,
        streamed: true,
        request_bytes: 12_400,
        response_bytes: 52_000,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap();
    let count = args.next().map_or(200_000, |count| count.parse::<u64>().unwrap());
    for each in [1, 64, 512, 4096] {
        let file = Path::new(&folder).join(format!("bench-{each}.sqlite"));
        let count = count.min(each * 400);
        let mut store = Store::open(&file).unwrap();
        let (mut decoding, mut storing, mut bytes) = (0.0, 0.0, 0);
        for first in (0..count).step_by(usize::try_from(each).unwrap()) {
            let mut writer = BatchWriter::new(BatchHead { incarnation: 1, seq: 1 });
            (first..first + each).for_each(|number| assert!(writer.push(&record(number).encode())));
            let sealed = writer.seal();
            bytes += sealed.len();
            let start = Instant::now();
            let batch = Batch::decode(&sealed).unwrap();
            decoding += start.elapsed().as_secs_f64();
            let start = Instant::now();
            store.insert(batch.records.iter()).unwrap();
            storing += start.elapsed().as_secs_f64();
        }
        let filter = Filter {
            tenant: None,
            model: None,
            period: Period::new(None, None, 0).unwrap(),
            max_rows: usize::MAX,
        };
        let start = Instant::now();
        let sums = report(&open_to_read(&file).unwrap(), &filter, &[By::Tenant], None).unwrap();
        let rate = count as f64 / storing;
        println!(
            "{each} a commit: {rate:.0} records/s; decoding {:.2} µs, {} bytes a record; report over {}: {:.1} ms; \
             {} bytes a row on disk",
            decoding / count as f64 * 1e6,
            bytes as u64 / count,
            sums.total.requests,
            start.elapsed().as_secs_f64() * 1e3,
            {
                drop(store);
                std::fs::metadata(&file).unwrap().len()
            } / count,
        );
    }
}
