//! No client steers routing, identity or a sidecar by headers that are the gateway's own.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use e2e::client::CHAT;
use e2e::echo_engine::EchoEngine;
use e2e::prompts::{chat, fresh_text};
use e2e::raw_client::RawClient;
use e2e::state::arrival;
use e2e::{Endpoint, Setup, Stack};

const DESTINATION: &str = "x-gateway-destination-endpoint";

/// What llm-d's router and sidecar act upon, and our own namespace.
const INTERNAL: [&str; 23] = [
    DESTINATION,
    "x-data-parallel-host-port",
    "x-encoder-hosts-ports",
    "x-gateway-base-model-name",
    "x-gateway-destination-endpoint-scores",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-fairness-id",
    "x-gateway-inference-objective",
    "x-gateway-model-name",
    "x-gateway-model-name-rewrite",
    "x-kv-cache-source-host-port",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-llm-d-request-dropped-reason",
    "x-llm-d-slo-tpot-ms",
    "x-llm-d-slo-ttft-ms",
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
    "x-warmroute-anything",
];

type Spelling = fn(&str) -> String;

/// Each header is sent in two of these at once; Envoy takes a hundred headers in all.
const SPELLINGS: [(&str, [Spelling; 2]); 3] = [
    ("lower-and-mixed", [str::to_owned, mixed]),
    ("mixed-and-underscores", [mixed, |name| name.replace('-', "_")]),
    ("underscores-and-some", [|name| name.replace('-', "_"), |name| name.replacen('-', "_", 1)]),
];

/// `x-gAtEwAy…`: every other letter large.
fn mixed(name: &str) -> String {
    let letter = |(at, letter): (usize, char)| {
        if at % 2 == 1 { letter } else { letter.to_ascii_uppercase() }
    };
    name.chars().enumerate().map(letter).collect()
}

/// A request with every internal header twice, naming `victim`.
fn request(line: &str, id: &str, spellings: [Spelling; 2], victim: &str, body: &str) -> String {
    let mut text =
        format!("{line} HTTP/1.1\r\nhost: e2e\r\nx-request-id: {id}\r\nx-session-id: mine\r\n");
    for spelling in spellings {
        for name in INTERNAL {
            let _ = write!(text, "{}: {victim}\r\n", spelling(name));
        }
    }
    let length = body.len();
    let _ =
        write!(text, "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    text
}

/// The destination header's values, after a check that no other internal header is there.
fn destinations(headers: &[(String, String)]) -> Vec<&str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let internal = headers.iter().filter(|(name, _)| INTERNAL.contains(&plain(name).as_str()));
    let (ours, others): (Vec<_>, Vec<_>) = internal.partition(|(name, _)| name == DESTINATION);
    assert_eq!(others, Vec::<&(String, String)>::new());
    assert!(headers.iter().any(|(name, _)| name == "x-session-id"), "{headers:?}");
    ours.into_iter().map(|(_, value)| value.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_sees_one_destination_header_and_it_is_ours() -> Result<()> {
    let stack = Stack::start(Setup::new(3, 1)).await?;
    let prompt = fresh_text(1000);
    let body = chat(&prompt, 2).to_string();
    let mut served = None;
    for (id, spellings) in SPELLINGS {
        // An engine of the pool, but not the one that holds the prompt.
        let mut others = stack.simulated().into_iter().map(|e| e.address.to_string());
        let victim = others.rfind(|address| Some(address) != served.as_ref());
        let victim = victim.context("no other engine")?;
        let mut client = RawClient::connect(stack.listen()).await?;
        let text = request(&format!("POST {CHAT}"), id, spellings, &victim, &body);
        client.send(text.as_bytes()).await?;
        let head = client.head().await?;
        assert_eq!(head.status, 200, "{id}");
        client.rest().await?;
        let engines = stack.engines().await?;
        let (engine, request) = arrival(&engines, id).context("the request arrived nowhere")?;
        let [destination] = destinations(&request.headers)[..] else {
            panic!("{id}: {:?}", request.headers)
        };
        // A client's would name one endpoint, three times the same.
        assert_eq!(destination.split(',').count(), 3, "{id}: {destination}");
        assert!(destination.starts_with(&format!("{},", engine.endpoint)), "{id}: {destination}");
        // The prompt decides, not the client.
        let before = served.replace(engine.endpoint.clone());
        assert!(before.is_none_or(|before| before == engine.endpoint), "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_prompt_are_stripped_as_well() -> Result<()> {
    let echo = EchoEngine::start().await?;
    let mut setup = Setup::new(0, 1);
    setup.other_endpoints = vec![Endpoint::new("echo", echo.address)];
    let stack = Stack::start(setup).await?;
    for line in ["GET /v1/models", "POST /v1/audio/speech"] {
        for (id, spellings) in SPELLINGS {
            let mut client = RawClient::connect(stack.listen()).await?;
            client.send(request(line, id, spellings, "192.0.2.1:80", "{}").as_bytes()).await?;
            assert_eq!(client.head().await?.status, 200, "{line} {id}");
            let seen: serde_json::Value = serde_json::from_slice(&client.rest().await?)?;
            let headers: Vec<(String, String)> = serde_json::from_value(seen["headers"].clone())?;
            assert_eq!(destinations(&headers), [echo.address.to_string()], "{line} {id}");
        }
    }
    Ok(())
}

/// The filter is off there: Envoy itself takes off what steers routing and sidecars.
#[tokio::test(flavor = "multi_thread")]
async fn the_route_around_the_filter_takes_off_what_steers() -> Result<()> {
    let steering = [
        DESTINATION,
        "x-gateway-destination-endpoint-subset",
        "x-prefiller-host-port",
        "x-prefiller-url",
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
        "x-kv-cache-source-host-port",
    ];
    let stack = Stack::start(Setup::new(1, 1)).await?;
    let mut client = RawClient::connect(stack.listen()).await?;
    let (id, spellings) = SPELLINGS[0];
    let body = chat("Hi", 2).to_string();
    let text = request(&format!("POST /rr{CHAT}"), id, spellings, "192.0.2.1:80", &body);
    client.send(text.as_bytes()).await?;
    assert_eq!(client.head().await?.status, 200);
    client.rest().await?;
    let engines = stack.engines().await?;
    let (_, request) = arrival(&engines, id).context("the request arrived nowhere")?;
    for name in steering {
        assert_eq!(request.header(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(request.header("x-session-id"), ["mine"]);
    Ok(())
}
