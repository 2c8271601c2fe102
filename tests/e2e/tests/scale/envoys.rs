//! Two Envoys on one agent: each decides by itself.

use anyhow::Result;
use e2e::client::{Request, send};
use e2e::prompts::{chat, fresh_text};
use e2e::raw_client::RawClient;
use e2e::state::FilterState;
use e2e::{Setup, Stack, access_log, client};
use serde_json::json;

const WORKERS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn two_envoys_share_the_agent_and_nothing_else() -> Result<()> {
    let setup = Setup::new(6, WORKERS).simulator(&["--decode-ms", "200"]);
    let stack = Stack::start(setup).await?;
    let another = stack.another_envoy().await?;
    let (one, two) = (stack.listen(), another.listen);
    for listen in [one, two] {
        let complete = async || {
            let state = FilterState::ask(listen).await.ok()?;
            let ready = state.endpoints.iter().filter(|endpoint| endpoint.ready).count();
            (ready == 6 && state.vms == WORKERS + 1).then_some(())
        };
        stack.until("a table and all VMs", complete).await?;
    }

    // What the first one has under way the second one does not count.
    let mut stream = chat(&fresh_text(500), 1000);
    stream["stream"] = json!(true);
    let mut client = RawClient::connect(one).await?;
    client.post(client::CHAT, "stream", &[], stream.to_string().as_bytes()).await?;
    assert_eq!(client.head().await?.status, 200);
    let counts = async |listen, count: u64| {
        (FilterState::ask(listen).await.ok()?.in_flight == count).then_some(())
    };
    stack.until("the stream counted", async || counts(one, 1).await).await?;
    assert_eq!(FilterState::ask(two).await?.in_flight, 0);
    client.reset();
    stack.until("the stream gone", async || counts(one, 0).await).await?;

    // Nor does it know who holds which prompt; once it has picked it does.
    for round in 0..8 {
        let prompt = chat(&fresh_text(2000), 1);
        let ids = [format!("one-{round}"), format!("two-{round}"), format!("again-{round}")];
        for (listen, id) in [one, two, two].into_iter().zip(&ids) {
            assert_eq!(send(listen, &Request::chat(&prompt).id(id)).await?.status, 200);
        }
        let log = stack.dir().join("another").join(access_log::FILE);
        let record = async |id: &String| {
            let found = async || access_log::find(&log, id);
            stack.until(&format!("a record of request {id}"), found).await
        };
        assert_eq!(record(&ids[1]).await?.matched_tokens(), Some(0));
        let again = record(&ids[2]).await?;
        assert!(again.matched_tokens() > Some(300), "{again:?}");
        assert_eq!(again.endpoint, record(&ids[1]).await?.endpoint);
    }

    // What the agent says comes to both.
    let fewer = &stack.simulated()[..3];
    stack.write_endpoints(fewer)?;
    for listen in [one, two] {
        let told =
            async || (FilterState::ask(listen).await.ok()?.endpoints.len() == 3).then_some(());
        stack.until("three endpoints", told).await?;
    }
    Ok(())
}
