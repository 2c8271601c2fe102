//! The binary as a script starts and stops it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_engine-sim"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

#[test]
fn says_when_it_listens_and_ends_cleanly_on_sigterm() {
    let mut child = start(&["--replicas", "3", "--base-port", "0", "--admin-port", "0"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["ready"], true);
    let replicas = ready["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    for endpoint in replicas.iter().chain([&ready["admin"]]) {
        std::net::TcpStream::connect(endpoint.as_str().unwrap()).expect("the port is open");
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn refuses_what_cannot_work_and_says_why() {
    for (args, hint) in [
        (&["--max-model-len", "200000"][..], "raise --num-blocks"),
        (&["--time-scale", "0"], "--time-scale must be above 0"),
        (&["--base-port", "65534", "--replicas", "4"], "lower --base-port"),
        (&["--no-such-flag"], "unexpected argument"),
    ] {
        let mut child = start(args);
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(stderr.contains(hint), "{stderr}");
    }
}

#[test]
fn help_names_every_fault() {
    let output = start(&["--help"]).wait_with_output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for word in [
        "die",
        "hang",
        "error",
        "reset",
        "drain",
        "refuse",
        "crash_midstream",
        "crash_midstream_silent",
        "restart",
        "metrics_drop",
        "metrics_freeze",
        "events_drop",
        "events_gap",
        "events_stop",
        "replay_off",
        "replay_silent",
        "/flood",
        "/occupy",
        "/state",
        "--time-scale",
        "x-sim-cached-tokens",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn writes_the_model_folder_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("model");
    let output = start(&["model-folder", target.to_str().unwrap()]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
    let sizes = names.map(|name| std::fs::metadata(target.join(name)).unwrap().len());
    assert!(sizes.iter().all(|&size| size > 100), "{sizes:?}");
    for name in &names[..2] {
        let text = std::fs::read_to_string(target.join(name)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap();
    }
}
