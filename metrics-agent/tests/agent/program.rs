//! The binary: exit codes, what it prints, signals.

use crate::run::{Folder, list};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_warmroute-agent"))
}

fn check(folder: &Folder, name: &str) -> (Option<i32>, String, String) {
    let path = folder.path(name);
    let Output { status, stdout, stderr } =
        program().arg("check-config").arg(path).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn check_config_prints_what_it_understood() {
    let folder = Folder::new();
    let a = list(&[("a", "10.0.0.1:8000".parse().unwrap())]);
    let foreign = "apiVersion: apps/v1\nkind: Deployment\n---\n";
    let b = list(&[("b", "[fd00:0::2]:8000".parse().unwrap())]);
    std::fs::create_dir(folder.path("deep")).unwrap();
    folder.write("a.yaml", &a);
    folder.write("deep/b.yml", &format!("{foreign}{b}"));
    folder.write("notes.txt", "not read");
    let (code, out, errors) = check(&folder, "");
    assert_eq!(code, Some(0), "{errors}");
    let lines: Vec<_> = out.lines().collect();
    let expected = [
        "endpoint default/a at 10.0.0.1:8000",
        "endpoint default/b at [fd00::2]:8000",
        "ok: 2 files, 2 endpoint lists, 2 endpoints, 0 KVEvents documents, 0 models, 1 warning",
    ];
    assert_eq!(lines, expected);
    assert!(errors.contains("b.yml:2: kind `Deployment` is not read"), "{errors}");
}

#[test]
fn check_config_says_where_each_endpoints_events_come_from() {
    let folder = Folder::new();
    let mut text = list(&[("a", "10.0.0.1:8000".parse().unwrap())]);
    let own = "- {name: b, address: 10.0.0.2, port: 80, labels: {warmroute/kv-events-port: '7'}}\n";
    text += own;
    for (kv, a, b) in [
        ("", "", " warmroute/kv-events-port=7, KV events port 7, 1 rank"),
        (
            "---\nkind: KVEvents\n",
            ", KV events where the engine says",
            " warmroute/kv-events-port=7, KV events port 7, 1 rank",
        ),
        (
            "---\nkind: KVEvents\nport: 5557\nreplayPort: 5657\nranks: 2\n",
            ", KV events where the engine says, else port 5557, replay 5657, 2 ranks",
            " warmroute/kv-events-port=7, KV events port 7, 2 ranks",
        ),
    ] {
        folder.write("pool.yaml", &format!("{text}{kv}"));
        let (code, out, errors) = check(&folder, "pool.yaml");
        assert_eq!(code, Some(0), "{errors}");
        let lines: Vec<_> = out.lines().take(2).collect();
        let expected = [
            format!("endpoint default/a at 10.0.0.1:8000{a}"),
            format!("endpoint default/b at 10.0.0.2:80{b}"),
        ];
        assert_eq!(lines, expected);
    }
}

#[test]
fn check_config_says_which_models_are_told_byte_for_byte() {
    let folder = Folder::new();
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/engine-sim/assets/tokenizer.json");
    std::fs::create_dir(folder.path("fine")).unwrap();
    std::fs::copy(assets, folder.path("fine/tokenizer.json")).unwrap();
    folder.write("fine/chat_template.jinja", "{{ messages }}");
    let model = |name| format!("---\nkind: Model\nname: {name}\nfolder: {name}\n");
    let text = format!("endpoints: []\n{}{}", model("fine"), model("none"));
    folder.write("pool.yaml", &text);
    let (code, out, errors) = check(&folder, "pool.yaml");
    assert_eq!(code, Some(0), "{errors}");
    let lines: Vec<_> = out.lines().collect();
    let expected = [
        "model fine, 4101 token ids, chat template, NFC",
        "model none, approximate",
        "ok: 1 file, 1 endpoint list, 0 endpoints, 0 KVEvents documents, 2 models, 1 warning",
    ];
    assert_eq!(lines, expected);
    let expected = "none/tokenizer.json cannot be read";
    assert!(errors.starts_with("warning: model none: ") && errors.contains(expected), "{errors}");
}

#[test]
fn check_config_fails_with_place_and_remedy() {
    let folder = Folder::new();
    let cases = [
        ("endpoints:\n- nam: a\n", "bad.yaml:2: unknown field `nam`; did you mean `name`?"),
        ("endpoints: [{name: a, address: x, port: 1}]", "bad.yaml:1: `address` is `x`; give"),
        ("endpoints: [", "correct the YAML"),
        ("", "bad.yaml: is empty; write `endpoints: []`"),
    ];
    for (text, message) in cases {
        folder.write("bad.yaml", text);
        let (code, out, errors) = check(&folder, "bad.yaml");
        assert_eq!(code, Some(1), "{text}");
        assert!(errors.contains(message), "{text}: {errors}");
        assert_eq!(out, "refused: 1 error\n");
    }
    let (code, _, errors) = check(&folder, "missing.yaml");
    assert_eq!(code, Some(1));
    assert!(errors.contains("missing.yaml: cannot be read"), "{errors}");
    std::fs::write(folder.path("large.yaml"), "#".repeat((1 << 20) + 1)).unwrap();
    let (code, _, errors) = check(&folder, "large.yaml");
    assert_eq!(code, Some(1));
    assert!(errors.contains("larger than 1048576 bytes"), "{errors}");
    std::fs::write(folder.path("bytes.yaml"), [0xff, 0xfe]).unwrap();
    assert!(check(&folder, "bytes.yaml").2.contains("bytes.yaml: is not UTF-8 text"));
}

#[test]
fn files_that_never_end_and_folders_in_circles_are_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("pipe")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path("pipe/a.yaml")).status().unwrap();
    assert!(made.success());
    std::fs::create_dir(folder.path("circle")).unwrap();
    for n in 0..12 {
        std::os::unix::fs::symlink(".", folder.path(&format!("circle/{n}"))).unwrap();
    }
    let deep = format!("endpoints: {}", "[".repeat(100_000));
    let cases = [
        ("pipe", "a.yaml: is not a regular file"),
        ("circle", "has more than 8 levels of folders"),
        ("deep.yaml", "correct the YAML"),
    ];
    folder.write("deep.yaml", &deep);
    for (name, message) in cases {
        let (code, _, errors) = check(&folder, name);
        assert_eq!(code, Some(1), "{name}");
        assert!(errors.contains(message), "{name}: {errors}");
        assert!(errors.lines().count() <= 20, "{name}: {errors}");
    }
}

#[test]
fn run_refuses_a_bad_start_and_says_why() {
    let folder = Folder::new();
    let config = folder.write("pool.yaml", "endpoints: [{name: a}]");
    let run = |config: &std::path::Path| {
        let output = program()
            .args(["run", "--listen", "127.0.0.1:0", "--config"])
            .arg(config)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, errors) = run(&config);
    assert_eq!(code, Some(1));
    assert!(errors.contains("field `address` is missing"), "{errors}");
}

#[test]
fn signals_stop_it_cleanly() {
    let folder = Folder::new();
    let config = folder.write("pool.yaml", "endpoints: []");
    for signal in ["TERM", "INT"] {
        let mut child = program()
            .args(["run", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_up = |line: &std::io::Result<String>| {
            let line: serde_json::Value = serde_json::from_str(line.as_ref().unwrap()).unwrap();
            line["message"] == "listening" && line["address"].is_string()
        };
        assert!(lines.by_ref().any(|line| is_up(&line)), "logs are JSON lines");
        let pid = child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(sent.success());
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}: {rest:?}");
        assert!(rest.last().unwrap().contains("\"stopped\""), "{rest:?}");
    }
}

#[test]
fn it_takes_as_many_descriptors_as_it_may() {
    let folder = Folder::new();
    let config = folder.write("pool.yaml", "endpoints: []");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -Sn 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_warmroute-agent")])
        .args(["run", "--listen", "127.0.0.1:0", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().contains("\"listening\"")));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = files.split_whitespace().skip(3).take(2).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(numbers[0], numbers[1], "{files}");
    assert_ne!(numbers[0], "64");
}

#[test]
fn help_names_every_option_and_its_default() {
    let output = program().args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for part in ["--config <FILE-or-FOLDER>", "--eds-dir", "127.0.0.1:7080", "50ms", "/readyz"] {
        assert!(help.contains(part), "{part}\n{help}");
    }
}
