//! The first slice: the pick is made from the body, and a conversation comes back to its engine.

use anyhow::{Context as _, Result};
use e2e::client::{Request, send};
use e2e::prompts::{chat_of, fresh_text};
use e2e::state::arrival;
use e2e::{Setup, Stack};
use serde_json::{Value, json};

/// A conversation as the client keeps it.
struct Conversation(Vec<Value>);

impl Conversation {
    fn new() -> Self {
        Self(vec![json!({"role": "user", "content": fresh_text(3000)})])
    }

    /// The next turn, after the engine's answer.
    fn go_on(&mut self, answer: &Value) -> Result<()> {
        let reply = answer["choices"][0]["message"]["content"].as_str().context("no reply")?;
        self.0.push(json!({"role": "assistant", "content": reply}));
        self.0.push(json!({"role": "user", "content": fresh_text(150)}));
        Ok(())
    }

    fn request(&self, id: &str) -> Request {
        Request::chat(&chat_of(&json!(self.0), 8)).id(id)
    }

    fn streamed(&self, id: &str) -> Request {
        let mut body = chat_of(&json!(self.0), 8);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        Request::chat(&body).id(id)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_comes_back_to_its_engine_and_another_goes_elsewhere() -> Result<()> {
    // Slow enough to be seen at work.
    let stack = Stack::start(Setup::new(3, 2).simulator(&["--prefill-rate", "1500"])).await?;
    let listen = stack.listen();
    let (mut one, mut other) = (Conversation::new(), Conversation::new());

    let request = one.request("one-1");
    let first = tokio::spawn(async move { send(listen, &request).await });
    let charged = async || (stack.filter_state().await.ok()?.in_flight == 1).then_some(());
    stack.until("the first request is charged", charged).await?;
    let other_first = send(listen, &other.request("other-1")).await?;
    let first = first.await??;
    assert_eq!((first.status, other_first.status), (200, 200));
    assert_ne!(first.engine(), other_first.engine());

    let log = stack.access("one-1").await?;
    assert_eq!(
        (log.endpoint.as_deref(), log.upstream.as_deref()),
        (first.engine(), first.engine())
    );
    assert_eq!((log.reason.as_deref(), log.cause.as_deref()), (Some("load"), Some("completed")));
    assert_eq!((log.matched_tokens(), log.cached_tokens()), (Some(0), Some(0)));
    assert_eq!(log.prompt_tokens(), first.json()["usage"]["prompt_tokens"].as_u64());
    assert_eq!(log.completion_tokens(), Some(8));
    // 1.4 s of prefill went before it.
    assert!(log.ttft_ms().is_some_and(|ms| ms > 500), "{log:?}");

    one.go_on(&first.json())?;
    let second = send(listen, &one.request("one-2")).await?;
    assert_eq!(second.engine(), first.engine());
    let usage = &second.json()["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert!(cached > Some(1000), "{usage}");
    let log = stack.access("one-2").await?;
    assert_eq!(log.reason.as_deref(), Some("prefix"));
    assert!(log.matched_tokens() > Some(0), "{log:?}");
    assert_eq!(
        (log.cached_tokens(), log.prompt_tokens()),
        (cached, usage["prompt_tokens"].as_u64())
    );

    other.go_on(&other_first.json())?;
    let other_second = send(listen, &other.request("other-2")).await?;
    assert_eq!(other_second.engine(), other_first.engine());

    one.go_on(&second.json())?;
    let third = send(listen, &one.streamed("one-3")).await?;
    assert_eq!((third.status, third.engine()), (200, first.engine()));
    assert!(third.text().trim_end().ends_with("data: [DONE]"), "{}", third.text());
    let log = stack.access("one-3").await?;
    assert_eq!((log.reason.as_deref(), log.cause.as_deref()), (Some("prefix"), Some("completed")));
    assert!(log.cached_tokens() > cached && log.ttft_ms().is_some(), "{log:?}");
    assert_eq!(log.completion_tokens(), Some(8));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_sees_the_pick_and_two_ranked_fallbacks() -> Result<()> {
    let stack = Stack::start(Setup::new(4, 2)).await?;
    let answer = send(stack.listen(), &Conversation::new().request("ranked")).await?;
    let engines = stack.engines().await?;
    let (engine, request) = arrival(&engines, "ranked").context("the request arrived nowhere")?;
    assert_eq!(Some(engine.endpoint.as_str()), answer.engine());
    let [destinations] = request.header("x-gateway-destination-endpoint")[..] else {
        panic!("not one destination header: {:?}", request.headers);
    };
    let mut ranked: Vec<&str> = destinations.split(',').collect();
    assert_eq!((ranked.len(), ranked[0]), (3, engine.endpoint.as_str()), "{destinations}");
    assert!(ranked.iter().all(|&to| engines.iter().any(|engine| engine.endpoint == to)));
    ranked.sort_unstable();
    ranked.dedup();
    assert_eq!(ranked.len(), 3, "{destinations}");
    Ok(())
}
