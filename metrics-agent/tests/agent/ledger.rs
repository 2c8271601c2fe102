//! Usage records over HTTP, through kills of the agent, and what `usage` prints of them.

use crate::http;
use crate::run::{Agent, Folder, LIMIT, options};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use warmroute_agent::ledger::Settings;
use warmroute_shared_state::usage_record::batch::{
    BatchHead, BatchWriter, MAX_BATCH_BYTES, acknowledged,
};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

fn record(number: u64) -> UsageRecord {
    UsageRecord {
        id: (9, number),
        at_ms: 1_790_000_000_000,
        request_id: format!("r{number}"),
        tenant: if number.is_multiple_of(2) { "even" } else { "odd" }.into(),
        fairness_id: "f".into(),
        model: "m".into(),
        target_model: "m".into(),
        pool: "p".into(),
        endpoint: "10.0.0.1:8000".into(),
        attempts: 1,
        priority: 0,
        status: 200,
        input_tokens: 100,
        cached_tokens: 40,
        output_tokens: 7,
        reasoning_tokens: 0,
        exact: true,
        reserved_tokens: 200,
        charged_tokens: 107,
        cause: EndCause::Natural,
        dropped: String::new(),
        flow: None,
        queue_ms: 0,
        ttft_ms: Some(20),
        duration_ms: 90,
        streamed: true,
        request_bytes: 400,
        response_bytes: 900,
    }
}

fn batch(seq: u64, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut writer = BatchWriter::new(BatchHead { incarnation: 9, seq });
    for number in numbers {
        assert!(writer.push(&record(number).encode()));
    }
    writer.seal()
}

/// The agent's program, killed with the test.
struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    fn start(folder: &Folder) -> Self {
        let config = folder.write("pool.yaml", "endpoints: []");
        let mut child = Command::new(env!("CARGO_BIN_EXE_warmroute-agent"))
            .args(["run", "--listen", "127.0.0.1:0", "--config"])
            .arg(config)
            .arg("--ledger")
            .arg(folder.path("usage.sqlite"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.map(Result::unwrap).find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line).ok()?;
            line["address"].as_str()?.parse().ok()
        });
        Self { child, address: address.expect("it listens") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn usage(ledger: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute-agent"));
    let output = command.arg("usage").arg("--ledger").arg(ledger).args(args).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// What was answered is on the disk; what was not is sent again, and stored once.
#[tokio::test]
async fn a_killed_agent_loses_and_doubles_nothing() {
    const BATCH: u64 = 200;
    let folder = Folder::new();
    let mut next = 0;
    for _ in 0..3 {
        let program = Program::start(&folder);
        for _ in 0..3 {
            let body = batch(next, next * BATCH..(next + 1) * BATCH);
            let (status, answer) = http::post_bytes(program.address, "/v1/records", &body).await;
            assert_eq!((status, acknowledged(&answer)), (200, Some(next)));
            next += 1;
        }
        // This one is under way at the kill: it is stored or not, and goes again to the next run.
        let body = batch(next, next * BATCH..(next + 1) * BATCH);
        let sent = tokio::spawn(http::send_bytes(program.address, "/v1/records", body));
        tokio::task::yield_now().await;
        drop(program);
        tokio::time::timeout(LIMIT, sent).await.expect("answered or cut").unwrap();
    }
    let program = Program::start(&folder);
    let body = batch(next, next * BATCH..(next + 1) * BATCH);
    assert_eq!(http::post_bytes(program.address, "/v1/records", &body).await.0, 200);
    // While the agent runs.
    let ledger = folder.path("usage.sqlite");
    let (fine, text) = usage(&ledger, &["--by", "tenant", "--format", "csv"]);
    assert!(fine, "{text}");
    let each = (next + 1) * BATCH / 2;
    let line = |tenant| {
        let (input, cached, output, charged) = (each * 100, each * 40, each * 7, each * 107);
        format!("{tenant},{each},{input},{cached},{output},0,{charged},0,{each},0,0,0,0,0")
    };
    let lines: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(lines, [line("even"), line("odd")]);
    drop(program);
    assert_eq!(usage(&ledger, &["--by", "tenant", "--format", "csv"]).1, text, "after a kill too");
}

#[tokio::test]
async fn usage_prints_cost_and_says_what_is_wrong() {
    let folder = Folder::new();
    let program = Program::start(&folder);
    let body = batch(1, 0..10);
    assert_eq!(http::post_bytes(program.address, "/v1/records", &body).await.0, 200);
    let ledger = folder.path("usage.sqlite");
    let prices =
        folder.write("prices.yaml", "models: {m: {input: 1, cachedInput: 0.1, output: 4}}");
    let prices = prices.to_str().unwrap();
    let (_, text) = usage(&ledger, &["--prices", prices, "--format", "json", "--tenant", "odd"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    // 300 computed, 200 cached, 35 out.
    assert_eq!(json["total"]["cost"], "0.00046");
    assert_eq!(json["rows"][0]["tenant"], "odd");
    let none = folder.path("none.sqlite");
    let cases: [(&Path, &[&str], &str); 4] = [
        (&none, &[], "cannot be opened"),
        (&ledger, &["--since", "yesterday"], "`yesterday` is no time; give an age like"),
        (&ledger, &["--prices", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (&ledger, &["--by", "colour"], "possible values: tenant, model, day, cause"),
    ];
    for (file, args, expected) in cases {
        let (fine, text) = usage(file, args);
        assert!(!fine && text.contains(expected), "{text}");
    }
}

async fn with_ledger(folder: &Folder) -> Agent {
    folder.write("pool.yaml", "endpoints: []");
    let mut options = options(folder);
    let file = Some(folder.path("usage.sqlite"));
    options.ledger = Settings { file, named: true, ..Settings::off() };
    Agent::start(options).await
}

#[tokio::test]
async fn what_is_no_batch_is_refused_and_counted() {
    let folder = Folder::new();
    let agent = with_ledger(&folder).await;
    let good = batch(7, 0..3);
    let mut damaged = good.clone();
    damaged[30] ^= 1;
    let cases = [
        (&b""[..], 400, "run filter and agent of the same release"),
        (&damaged, 400, "checksum does not match"),
        (&vec![0; MAX_BATCH_BYTES + 1], 413, "larger than 1048576 bytes"),
        (&good, 200, "7\n"),
    ];
    for (body, status, text) in cases {
        let answer = http::post_bytes(agent.address, "/v1/records", body).await;
        let seen = String::from_utf8(answer.1).unwrap();
        assert!(answer.0 == status && seen.contains(text), "{} {seen}", answer.0);
    }
    let metrics = http::text(agent.address, "/metrics").await;
    for line in [
        "warmroute_agent_ledger_batches_total{result=\"refused\"} 3",
        "warmroute_agent_ledger_batches_total{result=\"stored\"} 1",
        "warmroute_agent_config_age_seconds",
        "# EOF",
    ] {
        assert!(metrics.lines().any(|each| each.starts_with(line)), "{line}\n{metrics}");
    }
    assert_eq!(metrics.matches("# EOF").count(), 1);
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn totals_are_served() {
    let folder = Folder::new();
    let agent = with_ledger(&folder).await;
    http::post_bytes(agent.address, "/v1/records", &batch(1, 0..5)).await;
    let text = http::text(agent.address, "/v1/usage?by=tenant&since=2026-01-01").await;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["rows"][0]["tenant"], "even");
    assert_eq!((&json["rows"][0]["input"], &json["total"]["requests"]), (&300.into(), &5.into()));
    for bad in ["by=colour", "since=x", "price=1"] {
        assert_eq!(http::get(agent.address, &format!("/v1/usage?{bad}")).await.0, 400, "{bad}");
    }
    assert!(http::text(agent.address, "/").await.contains("<tr><td>odd<td>m"));
    let other = Folder::new();
    let agent = Agent::over(&other, "endpoints: []").await;
    assert_eq!(http::get(agent.address, "/v1/usage").await.0, 404);
    assert_eq!(http::post_bytes(agent.address, "/v1/records", &batch(1, 0..5)).await.0, 200);
}
