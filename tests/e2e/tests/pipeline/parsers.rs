//! Each API's requests are read, routed and counted; what no parser takes is refused.

use crate::bed::{Bed, picker_config, pool_config, short};
use anyhow::Result;
use e2e::client::{CHAT, Request, Response, send};
use e2e::{MODEL, Setup, Stack};
use serde_json::{Value, json};

/// A POST of JSON.
fn post(path: &str, body: &Value) -> Request {
    Request::post(path, e2e::prompts::body(body)).header("content-type", "application/json")
}

/// What the access log counts of an answer: prompt and completion tokens.
type Counts = (Option<u64>, Option<u64>);

/// The same as the answer itself says: `place` leads to its usage, `names` are the two fields in it.
fn told(answer: &Value, place: &str, names: [&str; 2]) -> Counts {
    let usage = answer.pointer(place).unwrap_or(&Value::Null);
    (usage[names[0]].as_u64(), usage[names[1]].as_u64())
}

/// The last event of a stream that is JSON and has something at `place`.
fn event_with(text: &str, place: &str) -> Value {
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut values = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    values.rfind(|value| value.pointer(place).is_some_and(Value::is_object)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_is_served_and_its_usage_counted() -> Result<()> {
    const OPENAI: [&str; 2] = ["prompt_tokens", "completion_tokens"];
    const OTHERS: [&str; 2] = ["input_tokens", "output_tokens"];
    let stack = Stack::start(Setup::new(2, 1)).await?;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let message = json!({"model": MODEL, "max_tokens": 4, "messages": messages});
    let response = json!({"model": MODEL, "max_output_tokens": 4, "input": "Hello"});
    let tokens =
        json!({"model": MODEL, "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4}});
    for (path, body, streamed_place, names) in [
        ("/v1/messages", message, "/usage", OTHERS),
        ("/v1/responses", response, "/response/usage", OTHERS),
        ("/inference/v1/generate", tokens, "", OPENAI),
        ("/v1/embeddings", json!({"model": MODEL, "input": ["Hello", "Goodbye"]}), "", OPENAI),
    ] {
        for stream in [false, true] {
            if stream && streamed_place.is_empty() {
                continue;
            }
            let mut body = body.clone();
            if stream {
                body["stream"] = json!(true);
            }
            let id = format!("{}-{stream}", path.replace('/', "-"));
            let answer = send(stack.listen(), &post(path, &body).id(&id)).await?;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let expected = if stream {
                told(&event_with(&answer.text(), streamed_place), streamed_place, names)
            } else {
                told(&answer.json(), "/usage", names)
            };
            assert!(expected.0 > Some(0), "{path} {stream}: {}", answer.text());
            let log = stack.access(&id).await?;
            let embeds = path == "/v1/embeddings";
            assert_eq!(log.prompt_tokens(), expected.0, "{path} {stream}");
            assert_eq!(log.completion_tokens().unwrap_or(0), expected.1.unwrap_or(0), "{path}");
            assert_eq!(log.completion_tokens().unwrap_or(0), if embeds { 0 } else { 4 }, "{path}");
            assert_eq!(log.model.as_deref(), Some(MODEL), "{path}");
            assert_eq!(log.cause.as_deref(), Some("completed"), "{path} {stream}");
            assert_eq!(log.upstream.as_deref(), answer.engine(), "{path}");
        }
    }
    // No tokens are computed for these.
    let items = json!([{"type": "message", "role": "user", "content": "Hello"}]);
    let conversation = post("/v1/conversations", &json!({"model": MODEL, "items": items}));
    let conversation = send(stack.listen(), &conversation.id("conversation")).await?;
    assert_eq!(
        (conversation.status, &conversation.json()["object"]),
        (200, &json!("conversation"))
    );
    assert_eq!(stack.access("conversation").await?.model.as_deref(), Some(MODEL));
    let count = json!({"model": MODEL, "messages": messages});
    let count =
        send(stack.listen(), &post("/v1/messages/count_tokens", &count).id("count")).await?;
    assert_eq!(count.status, 200);
    assert!(count.json()["input_tokens"].as_u64() > Some(0), "{}", count.text());
    for id in ["conversation", "count"] {
        let log = stack.access(id).await?;
        assert_eq!((log.prompt_tokens(), log.completion_tokens()), (None, None), "{id}");
        assert_eq!(log.endpoint, log.upstream, "{id}");
    }
    Ok(())
}

/// The answer is an error as OpenAI's API has it, about `param`.
fn assert_refused(answer: &Response, param: Option<&str>, about: &str) {
    assert_eq!(answer.status, 400, "{about}: {}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "invalid_request_error", "{about}");
    assert_eq!(error["param"], json!(param), "{about}");
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{about}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_there_and_is_not_is_named() -> Result<()> {
    let bed = Bed::start(&[&[]], &picker_config("- type: max-score-picker", &["max-score-picker"]))
        .await?;
    let full = json!({
        "model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi",
        "items": [{"role": "user", "content": "Hi"}], "token_ids": [1, 2],
    });
    for (path, field) in [
        (CHAT, "messages"),
        ("/v1/completions", "prompt"),
        ("/v1/embeddings", "input"),
        ("/v1/responses", "input"),
        ("/v1/conversations", "items"),
        ("/v1/images/generations", "prompt"),
        ("/v1/messages", "messages"),
        ("/inference/v1/generate", "token_ids"),
    ] {
        assert_eq!(bed.send(&post(path, &full)).await?.status, 200, "{path}");
        for missing in ["model", field] {
            let mut body = full.clone();
            body.as_object_mut().expect("an object").remove(missing);
            let answer = bed.send(&post(path, &body)).await?;
            assert_refused(&answer, Some(missing), &format!("{path} without {missing}"));
        }
    }
    Ok(())
}

fn with_parsers(parsers: &[&str]) -> String {
    let mut plugins =
        String::from("- type: label-selector-filter\n  parameters: {matchLabels: {tier: none}}");
    let mut refs = String::from("requestHandler:\n  parsers:\n");
    for parser in parsers {
        plugins.push_str(&format!("\n- type: {parser}"));
        refs.push_str(&format!("  - pluginRef: {parser}\n"));
    }
    picker_config(&plugins, &["label-selector-filter"]) + &refs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_without_a_parser_is_refused_and_what_has_no_body_is_routed() -> Result<()> {
    // No endpoint passes the profile's filter, so that 429 tells that a request was read and scheduled.
    let mut bed = Bed::start(&[&[]], &with_parsers(&["openai-parser"])).await?;
    let message = json!({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]});
    let anthropic = post("/v1/messages", &message).id("no-parser");
    assert_refused(&bed.send(&anthropic).await?, None, "no parser for /v1/messages");
    let log = bed.stack.access("no-parser").await?;
    assert_eq!((log.cause.as_deref(), log.endpoint), (Some("warmroute_no_parser"), None));
    assert_eq!(bed.send(&short()).await?.status, 429);
    // Nothing to judge by.
    assert_eq!(bed.served_by(&Request::get("/v1/models")).await?, 0);
    assert_eq!(bed.served_by(&Request::get("/v1/messages")).await?, 0);
    bed.configure(&with_parsers(&["openai-parser", "anthropic-parser"])).await?;
    assert_eq!(bed.send(&anthropic).await?.status, 429);
    assert_refused(
        &bed.send(&post("/v1/rerank", &message)).await?,
        None,
        "no parser for /v1/rerank",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_models_the_last_is_judged_and_sent() -> Result<()> {
    let rewrite = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: second, namespace: default}
spec:
  poolRef: {group: inference.networking.k8s.io, kind: InferencePool, name: llama}
  rules:
  - matches: [{model: {type: Exact, value: second}}]
    targets: [{modelRewrite: target, weight: 1}]
";
    let bed = Bed::start(&[&[("app", "llama")]], &pool_config(rewrite)).await?;
    let rest = r#""messages":[{"role":"user","content":"Hi"}]"#;
    for (id, sent, judged, target, got) in [
        (
            "last",
            r#""model":"first","model":"second""#,
            "second",
            Some("target"),
            r#""model":"target","model":"target""#,
        ),
        (
            "first",
            r#""model":"second","model":"first""#,
            "first",
            None,
            r#""model":"second","model":"first""#,
        ),
    ] {
        let body = format!("{{{sent},{rest}}}");
        let request = Request::post(CHAT, body.into()).header("content-type", "application/json");
        let answer = bed.send(&request.id(id)).await?;
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        let log = bed.stack.access(id).await?;
        assert_eq!(
            (log.model.as_deref(), log.target_model.as_deref()),
            (Some(judged), target),
            "{id}"
        );
        assert_eq!(answer.json()["body"], format!("{{{got},{rest}}}"), "{id}");
    }
    Ok(())
}
