//! A reader of the stream, as the filter is one.

use crate::http;
use crate::run::LIMIT;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use warmroute_shared_state::block::Tier;
use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord, Load};
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::signals::Signals;
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) record: EndpointRecord,
    pub(crate) load: Option<Load>,
    pub(crate) signals: Arc<Signals>,
    /// Tokens by tier and hash.
    pub(crate) blocks: BTreeMap<(Tier, u64), u32>,
}

impl Row {
    pub(crate) fn is_out(&self) -> bool {
        self.record.availability == Availability::Out
    }

    pub(crate) fn waiting(&self) -> Option<f32> {
        self.load.and_then(|load| load.waiting)
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    server: SocketAddr,
    pub(crate) position: Option<Position>,
    pub(crate) rows: BTreeMap<EndpointId, Row>,
    pub(crate) models: BTreeMap<String, Arc<ModelRecord>>,
    pub(crate) policy: Option<Policy>,
    pub(crate) snapshots: usize,
}

impl Reader {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            position: None,
            rows: BTreeMap::new(),
            models: BTreeMap::new(),
            policy: None,
            snapshots: 0,
        }
    }

    /// The endpoint of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Row> {
        let full = format!("default/{name}");
        self.rows.values().find(|row| row.record.name == full)
    }

    pub(crate) async fn fetch(&self, page: u32, wait_ms: u64) -> Option<Page> {
        let place =
            self.position.map_or(String::new(), |p| format!("epoch={}&seq={}&", p.epoch, p.seq));
        let path = format!("/v1/stream?{place}page={page}&wait_ms={wait_ms}");
        let (status, body) = http::get(self.server, &path).await;
        match status {
            200 => Some(Page::decode(&body).unwrap()),
            503 => None,
            other => panic!("status {other}"),
        }
    }

    /// Polls once and applies what comes; returns how many operations there were.
    pub(crate) async fn poll(&mut self, wait_ms: u64) -> usize {
        let Some(first) = self.fetch(0, wait_ms).await else { return 0 };
        let PageKind::Snapshot { page: 0, pages } = first.kind else {
            return self.apply(&first);
        };
        self.snapshots += 1;
        self.rows.clear();
        self.models.clear();
        let mut ops = self.apply(&first);
        for n in 1..pages {
            let page = self.fetch(n, 0).await.expect("a page");
            assert_eq!(page.kind, PageKind::Snapshot { page: n, pages });
            assert_eq!(Some(page.position), self.position);
            ops += self.apply(&page);
        }
        ops
    }

    fn apply(&mut self, page: &Page) -> usize {
        if let PageKind::Delta { from_seq } = page.kind {
            assert_eq!(
                self.position.map(|p| (p.epoch, p.seq)),
                Some((page.position.epoch, from_seq))
            );
        }
        for op in &page.ops {
            match op {
                AgentOp::Endpoint(record) => {
                    let known = self.rows.get(&record.id);
                    let load = known.and_then(|row| row.load);
                    let signals = known.map(|row| Arc::clone(&row.signals)).unwrap_or_default();
                    // A new generation voids what the endpoint held.
                    let same = |known: &&Row| known.record.generation == record.generation;
                    let blocks =
                        known.filter(same).map(|row| row.blocks.clone()).unwrap_or_default();
                    let record = record.clone();
                    self.rows.insert(record.id, Row { record, load, signals, blocks });
                }
                AgentOp::Remove(id) => {
                    self.rows.remove(id).expect("a known endpoint is removed");
                }
                AgentOp::Load { id, load, .. } => {
                    self.rows.get_mut(id).expect("load of a known endpoint").load = Some(*load);
                }
                AgentOp::Store { id, tier, blocks, .. } => {
                    let row = self.rows.get_mut(id).expect("blocks of a known endpoint");
                    row.blocks.extend(blocks.iter().map(|b| ((*tier, b.hash), b.tokens)));
                }
                AgentOp::Evict { id, tier, hashes, .. } => {
                    let row = self.rows.get_mut(id).expect("blocks of a known endpoint");
                    hashes.iter().for_each(|hash| {
                        row.blocks.remove(&(*tier, *hash));
                    });
                }
                AgentOp::Signals { id, signals } => {
                    let row = self.rows.get_mut(id).expect("signals of a known endpoint");
                    row.signals = Arc::clone(signals);
                }
                AgentOp::Policy(json) => self.policy = Some(Policy::from_json(json).unwrap()),
                AgentOp::Model(model) => {
                    self.models.insert(model.name.clone(), Arc::clone(model));
                }
                AgentOp::RemoveModel(name) => drop(self.models.remove(name)),
            }
        }
        self.position = Some(page.position);
        page.ops.len()
    }

    /// Follows the stream until the table is as wanted; `always` must hold after every page.
    pub(crate) async fn until_with(
        &mut self,
        what: &str,
        always: impl Fn(&Self),
        wanted: impl Fn(&Self) -> bool,
    ) {
        let found = tokio::time::timeout(LIMIT, async {
            while !wanted(self) {
                self.poll(1000).await;
                always(self);
            }
        });
        if found.await.is_err() {
            panic!("{what}: the table stayed {:#?}", self.rows);
        }
    }

    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) {
        self.until_with(what, |_| {}, wanted).await;
    }
}
