//! A stack whose one engine is the test itself.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use e2e::access_log::{self, Access};
use e2e::client::CHAT;
use e2e::raw_client::RawClient;
use e2e::scripted_engine::{ScriptedEngine, Served};
use e2e::state::Charged;
use e2e::{Endpoint, Setup, Stack};

/// What the tests ask.
pub(crate) const ASK: &[u8] = br#"{"model":"llama-70b","stream":true,"messages":[{"role":"user","content":"Tell me something, and take your time about it."}]}"#;

/// A stack whose one engine is the test itself.
pub(crate) struct Bed {
    pub(crate) stack: Stack,
    pub(crate) engine: ScriptedEngine,
}

impl Bed {
    pub(crate) async fn start() -> Result<Self> {
        let engine = ScriptedEngine::start().await?;
        let mut setup = Setup::new(0, 2);
        let name = "scripted".to_owned();
        setup.other_endpoints.push(Endpoint::new(name, engine.address));
        Ok(Self { stack: Stack::start(setup).await?, engine })
    }

    pub(crate) async fn connect(&self) -> Result<RawClient> {
        Ok(RawClient::connect(self.stack.listen()).await?)
    }

    /// Sends the request over `client`; returns once the engine has it.
    pub(crate) async fn ask(&self, client: &mut RawClient, id: &str) -> Result<Served> {
        let mut served = self.engine.expect(id);
        client.post(CHAT, id, &[], ASK).await?;
        let request = served.arrived().await.context("the engine got no request")?;
        ensure!(request.body == ASK, "{id}: the engine got another body");
        Ok(served)
    }

    /// A stream has begun at the engine, and its head is at the client.
    pub(crate) async fn begin_stream(&self, client: &mut RawClient, id: &str) -> Result<Served> {
        let served = self.ask(client, id).await?;
        served.send_stream_head();
        let head = client.head().await?;
        ensure!(head.status == 200, "{id}: status {}", head.status);
        Ok(served)
    }

    /// Records by request id, once there are `count`.
    pub(crate) async fn records(&self, count: usize) -> Result<HashMap<String, Access>> {
        let path = self.stack.dir().join(access_log::FILE);
        let all = async || {
            let posts =
                access_log::read(&path).into_iter().filter(|r| r.path.as_deref() == Some(CHAT));
            let by_id: HashMap<_, _> = posts
                .map(|record| (record.request_id.clone().unwrap_or_default(), record))
                .collect();
            (by_id.len() >= count).then_some(by_id)
        };
        self.stack.until(&format!("{count} records in the access log"), all).await
    }

    pub(crate) async fn nothing_in_flight(&self) -> Result<()> {
        let idle = async || {
            let state = self.stack.filter_state().await.ok()?;
            let endpoint = state.endpoints.first()?;
            (state.in_flight == 0 && endpoint.in_flight == Charged::default()).then_some(())
        };
        self.stack.until("nothing is in flight any more", idle).await
    }
}
