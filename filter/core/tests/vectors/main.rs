//! Runs llm-d's vectors (see README.md here) through the code that the filter runs.
#![cfg(not(target_arch = "wasm32"))]

mod bodies;
mod check;
mod entry;
mod flow;
mod in_flight;
mod picks;

use entry::{Entry, Failure, Part};
use std::collections::BTreeMap;
use std::io::Write;
use warmroute_shared_state::policy::plugin::types;

/// The file that a variable names, or the project's own.
const FILE_VARIABLE: &str = "WARMROUTE_VECTORS";

/// What became of an entry.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// It belongs to no part yet.
    Later,
}

/// Entries for what other parts of the filter do, by the names that the file has for them.
const ELSEWHERE: [&str; 7] = [
    "director:subset-hint",
    "director:flow-control-outcome",
    "director:legacy-admission",
    "inflight-load-producer:estimate",
    "inflight-load-producer:estimate-output",
    "parser-registry",
    "response-model-rewrite",
];

fn run(entry: &Entry) -> Result<Outcome, Failure> {
    let name = entry.plugin.as_str();
    let known = types().iter().any(|known| known.name == name)
        || ELSEWHERE.contains(&name)
        || name == "openai-parser:usage";
    if !known {
        return Err(Failure::new("no such plugin"));
    }
    if entry.part == Part::Later {
        return Ok(Outcome::Later);
    }
    if let Some(result) = check::configuration(entry) {
        return result.map(|()| Outcome::Passed);
    }
    let built = match name {
        "director:subset-hint" => in_flight::subset(entry),
        "inflight-load-producer:estimate" => in_flight::total(entry),
        "inflight-load-producer:estimate-output" => in_flight::output(entry),
        "parser-registry" => bodies::parser(entry),
        "response-model-rewrite" => bodies::model_name(entry),
        "openai-parser:usage" => bodies::usage(entry),
        "director:flow-control-outcome" => flow::outcome(entry),
        "director:legacy-admission" => flow::shedding(entry),
        "slo-deadline-ordering-policy" => flow::slo_deadline(entry),
        "static-usage-limit-policy"
        | "priority-holdback-policy"
        | "soft-reflective-ceiling-policy" => flow::ceilings(entry),
        "prefix-based-pd-decider" => picks::decider(entry),
        "concurrency-detector" | "utilization-detector" => picks::detector(entry),
        _ if name.ends_with("-filter") => picks::filter(entry),
        _ if name.ends_with("-scorer") => picks::scorer(entry),
        "context-length-aware" => picks::filter(entry),
        _ => Err(Failure::new("nothing runs this plugin")),
    };
    built.map(|()| Outcome::Passed)
}

/// Runs all entries; the failures by their places.
fn run_all(json: &str) -> (BTreeMap<&'static str, usize>, Vec<String>) {
    let lines: Vec<serde_json::Value> = serde_json::from_str(json).expect("a JSON list");
    let mut counts = BTreeMap::new();
    let mut failures = Vec::new();
    for (at, value) in lines.iter().enumerate() {
        let result = Entry::read(value).and_then(|entry| run(&entry));
        let outcome = match result {
            Ok(Outcome::Passed) => "passed",
            Ok(Outcome::Later) => "skipped: of no part yet",
            Err(failure) => {
                failures.push(format!("entry {at}: {failure}\n  {value}"));
                "failed"
            }
        };
        *counts.entry(outcome).or_default() += 1;
    }
    (counts, failures)
}

#[test]
fn every_vector_passes() {
    let json = match std::env::var_os(FILE_VARIABLE) {
        Some(path) => std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{FILE_VARIABLE} {}: {error}", path.display())),
        None => include_str!("epp.json").to_owned(),
    };
    let (counts, failures) = run_all(&json);
    // Past the test harness, which would keep it to itself.
    let _ = writeln!(std::io::stderr(), "vectors: {counts:?}");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(counts.get("passed").is_some_and(|passed| *passed > 0), "nothing ran: {counts:?}");
}

#[test]
fn a_vector_that_is_wrong_fails() {
    let entries = [
        // Another result.
        r#"{"part":"C","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[10,5,0]},"expected":{"scores":[0,0.4,1]}}"#,
        r#"{"part":"C","plugin":"utilization-filter","params":{"conditions":[{"metric":"waiting-queue","maxValue":0}]},"input":{"endpoints":[{"waiting":3}]},"expected":{"kept_indexes":[0]}}"#,
        r#"{"part":"C","plugin":"prefix-cache-affinity-filter","params":{"affinityThreshold":1.5},"input":null,"expected":{"config_error":false}}"#,
        r#"{"part":"C","plugin":"prefix-based-pd-decider","params":{"nonCachedTokens":5},"input":{"input_tokens":10,"cached_tokens":0},"expected":{"disaggregate":false}}"#,
        r#"{"part":"D","plugin":"concurrency-detector","params":{"maxConcurrency":10},"input":{"inflight_requests":[15,15]},"expected":{"saturation":1.0}}"#,
        r#"{"part":"D","plugin":"slo-deadline-ordering-policy","params":{},"input":{"a":{"received_ms":0,"slo_ttft_header":"50"},"b":{"received_ms":0,"slo_ttft_header":"50"}},"expected":{"a_before_b":true}}"#,
        r#"{"part":"D","plugin":"priority-holdback-policy","params":{"minCeiling":0.5},"input":{"priorities":[2,1]},"expected":{"ceilings":[1,0.6]}}"#,
        r#"{"part":"D","plugin":"soft-reflective-ceiling-policy","params":{},"input":{"saturation":0.75,"priorities":[2,1],"calls":2},"expected":{"ceilings_band1":[0,1]}}"#,
        r#"{"part":"D","plugin":"director:flow-control-outcome","params":{},"input":{"outcome":"EvictedTTL","pool_empty":true},"expected":{"http_status":429,"header":{"x-llm-d-request-dropped-reason":"rejected-no-endpoints"}}}"#,
        r#"{"part":"D","plugin":"director:flow-control-outcome","params":{},"input":{"outcome":"EvictedTTL","pool_empty":false},"expected":{"http_status":429,"header":{"x-llm-d-request-dropped-reason":"evicted"}}}"#,
        r#"{"part":"D","plugin":"director:legacy-admission","params":{},"input":{"priority":0,"saturation":1.0},"expected":{"http_status":429}}"#,
        // Unknown plugins, parts and keys.
        r#"{"part":"C","plugin":"queue-scorrer","params":{},"input":{"waiting_queue_size":[1]},"expected":{"scores":[1]}}"#,
        r#"{"part":"later","plugin":"frobnicator","params":{},"input":{},"expected":{}}"#,
        r#"{"part":"Z","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[1]},"expected":{"scores":[1]}}"#,
        r#"{"part":"C","plugin":"queue-scorer","params":{"x":1},"input":{"waiting_queue_size":[1]},"expected":{"scores":[1]}}"#,
        r#"{"part":"C","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[1],"x":1},"expected":{"scores":[1]}}"#,
        r#"{"part":"C","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[1]},"expected":{"scores":[1],"x":1}}"#,
        r#"{"part":"C","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[1]},"expected":{}}"#,
        r#"{"part":"C","plugin":"queue-scorer","params":{},"input":{"waiting_queue_size":[1]},"expected":{"scores":[1]},"x":1}"#,
        r#"{"part":"C","plugin":"max-score-picker","params":{},"input":{},"expected":{"scores":[]}}"#,
    ];
    for entry in entries {
        let (counts, failures) = run_all(&format!("[{entry}]"));
        assert_eq!(failures.len(), 1, "{counts:?}: {entry}");
    }
}

#[test]
fn a_vector_of_no_part_yet_is_skipped() {
    let entries = r#"[
        {"part":"later","plugin":"latency-scorer","params":{"a":1},"input":{"b":2},"expected":{"c":3}}
    ]"#;
    let (counts, failures) = run_all(entries);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(counts["skipped: of no part yet"], 1);
}
