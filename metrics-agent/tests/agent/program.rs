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
    let expected = ["endpoint default/a at 10.0.0.1:8000", "endpoint default/b at [fd00::2]:8000"];
    assert_eq!(lines[..2], expected);
    let last = "ok: 2 files, 2 endpoint lists, 2 endpoints, 0 KVEvents documents, 0 models, 0 EndpointPickerConfigs, \
                0 InferencePools, 0 HTTPRoutes, 0 InferenceModelRewrites, 0 InferenceObjectives, 0 model mappings, \
                0 TenantQuotas, 1 warning";
    assert_eq!(*lines.last().unwrap(), last);
    assert!(out.contains("scorer queue-scorer weight 2 (Queue)"), "llm-d's default plugins\n{out}");
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
    let expected = ["model fine, 4101 token ids, chat template, NFC", "model none, approximate"];
    assert_eq!(lines[..2], expected);
    assert!(lines.last().unwrap().contains(" 2 models, "), "{out}");
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

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: chat-epp-config, namespace: prod}
data:
  config.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    plugins:
      - type: prefix-cache-scorer
        parameters: {matchLengthWeight: 0.5}
      - {type: queue-scorer}
    schedulingProfiles:
      - name: default
        plugins: [{pluginRef: prefix-cache-scorer, weight: 3}, {pluginRef: queue-scorer}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: chat, namespace: prod}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: 8000}, {number: 8001}]
  endpointPickerRef: {name: chat-epp, port: {number: 9002}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: chat, namespace: prod}
spec:
  parentRefs: [{name: gateway}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /v1}, headers: [{name: X-Model, value: chat}]}]
      backendRefs:
        - {group: inference.networking.k8s.io, kind: InferencePool, name: chat, weight: 9}
        - {group: inference.networking.k8s.io, kind: InferencePool, name: gone, weight: 1}
      timeouts: {request: 0s}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: helper, namespace: prod}
spec:
  poolRef: {name: chat}
  rules:
    - matches: [{model: {type: Exact, value: helper}}]
      targets: [{modelRewrite: helper-1, weight: 3}, {modelRewrite: helper-2, weight: 1}]
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: gold, namespace: prod}
spec: {priority: 10, poolRef: {name: chat}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: names, namespace: prod, labels: {inference.llm-d.ai/ipp-managed: "true"}}
data: {baseModel: chat, adapters: "[helper, helper-1]"}
---
apiVersion: mini-platform.local/v1alpha1
kind: TenantQuota
metadata: {name: team}
spec:
  identity: {apiKeyHashes: [00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff]}
  inject: {objective: gold}
  limits: [{model: chat, rpm: 60, tpm: 1000}]
---
endpoints:
- {name: e, namespace: prod, address: 10.0.0.1, labels: {app: vllm}}
"#;

#[test]
fn check_config_prints_the_whole_pipeline() {
    let folder = Folder::new();
    folder.write("all.yaml", OBJECTS);
    let (code, out, errors) = check(&folder, "all.yaml");
    assert_eq!(code, Some(0), "{errors}");
    for line in [
        "endpoint prod/e-rank-0 at 10.0.0.1:8000 app=vllm",
        "endpoint prod/e-rank-1 at 10.0.0.1:8001 app=vllm",
        "pool prod/chat: cluster --pool, selector app=vllm, ports 8000 8001, HTTP/1.1, FailClose, plugins of \
         chat-epp-config, 2 endpoints",
        "plugins of chat-epp-config: one profile, parsers OpenAi Anthropic VllmHttp Passthrough",
        "    scorer prefix-cache-scorer weight 3 (PrefixCache, match_length_scale_tokens=8192, match_length_weight=0.5)",
        "    scorer queue-scorer weight 1 (Queue)",
        "    picker max-score-picker (kind=\"MaxScore\", max_endpoints=1)",
        "route 1: path /v1/*, header x-model=… → 9 prod/chat : 1 prod/gone (500) (prod/chat/0, split by \
         conversation, no timeout)",
        "base model chat: helper, helper-1",
        "rewrite prod/helper of prod/chat: helper → 3 helper-1 : 1 helper-2, split by conversation",
        "objective gold of prod/chat: priority 10",
        "tenant team: 1 API key, fairness ID team, objective gold, cut streams billed by chunks",
        "  model chat: 60 requests a minute, 1000 tokens a minute",
        "ok: 1 file, 1 endpoint list, 2 endpoints, 0 KVEvents documents, 0 models, 1 EndpointPickerConfig, \
         1 InferencePool, 1 HTTPRoute, 1 InferenceModelRewrite, 1 InferenceObjective, 1 model mapping, \
         1 TenantQuota, 1 warning",
    ] {
        assert!(out.lines().any(|printed| printed == line), "{line}\n{out}");
    }
    assert!(
        errors.contains("all.yaml:34: backend `prod/gone` does not exist (ResolvedRefs=False)"),
        "{errors}"
    );
    assert!(!out.contains("00112233"), "no secret is shown\n{out}");
}

#[test]
fn check_config_points_into_the_text_of_a_config_map() {
    let folder = Folder::new();
    folder.write("all.yaml", &OBJECTS.replace("matchLengthWeight", "matchLengthWieght"));
    let (code, out, errors) = check(&folder, "all.yaml");
    assert_eq!((code, out.as_str()), (Some(1), "refused: 1 error\n"));
    let expected = "all.yaml:11: plugin `prefix-cache-scorer` of type `prefix-cache-scorer`: there is no parameter \
                    `matchLengthWieght`; did you mean `matchLengthWeight`?";
    assert!(errors.contains(expected), "{errors}");
}
