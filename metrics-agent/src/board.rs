//! What is known of every configured endpoint, for people, metrics and readiness.
//!
//! The stream's table holds only endpoints that were announced; here are all.

use crate::config::file_discovery::EndpointSpec;
use crate::metrics::Census;
use crate::metrics::pools::{self, Member, PoolFigures};
use crate::scrape::health::Health;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord};

/// One endpoint.
#[derive(Debug, Clone)]
pub struct Entry {
    /// As configured.
    pub spec: EndpointSpec,
    /// From its scrapes; `None` before the first.
    pub health: Option<Health>,
    /// Whether it is on the stream.
    pub announced: bool,
}

impl Entry {
    /// As the stream tells it; `None` before it answered or was found out.
    #[must_use]
    pub fn record(&self) -> Option<EndpointRecord> {
        let health = self.health.as_ref()?;
        Some(EndpointRecord {
            id: self.spec.id(),
            generation: health.generation(),
            name: self.spec.full_name(),
            address: self.spec.address.to_string(),
            availability: health.availability()?,
            block_tokens: health.block_tokens(),
            kv_blocks: health.kv_blocks(),
            // By the table, which knows whose events are followed.
            precise: false,
            lower_tier_percent: 0,
            labels: self.spec.labels.clone().into_iter().collect(),
            pools: self.spec.pools.clone(),
        })
    }

    /// `pending`, `ready` or `out`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.health.as_ref().and_then(Health::availability) {
            None => "pending",
            Some(Availability::Ready) => "ready",
            Some(Availability::Out) => "out",
        }
    }

    /// For `GET /v1/endpoints`.
    #[must_use]
    pub fn to_json(&self, now: Instant) -> Value {
        let health = self.health.as_ref();
        let measured = health.and_then(Health::measured);
        let load = measured.map(|m| m.load).unwrap_or_default();
        let age = measured.map(|m| now.saturating_duration_since(m.at).as_millis());
        json!({
            "name": self.spec.full_name(),
            "address": self.spec.address.to_string(),
            "state": self.state(),
            "on_stream": self.announced,
            "waiting": load.waiting,
            "running": load.running,
            "kv_usage": load.kv_usage,
            "age_ms": age.and_then(|age| u64::try_from(age).ok()),
            "block_tokens": health.map(Health::block_tokens),
            "kv_blocks": health.map(Health::kv_blocks),
            "adapters": health.and_then(|health| health.signals().adapters.as_ref()).map(|adapters| json!({
                "active": adapters.active, "waiting": adapters.waiting, "max": adapters.max,
            })),
            "attributes": health.map(|health| {
                let attributes = health.signals().attributes.iter();
                attributes.map(|(key, value)| (key.clone(), json!(value))).collect::<serde_json::Map<_, _>>()
            }),
            "generation": health.map(|h| format!("{:016x}", h.generation())),
            "labels": self.spec.labels,
            "pools": self.spec.pools,
        })
    }
}

/// All endpoints of the configuration, by identity.
#[derive(Debug, Default)]
pub struct Board {
    entries: Mutex<BTreeMap<EndpointId, Entry>>,
    pools: Mutex<Vec<String>>,
}

impl Board {
    /// The entries, locked. Nothing is awaited while they are.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<EndpointId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries, sorted by name.
    #[must_use]
    pub fn sorted(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.lock().values().cloned().collect();
        entries.sort_by_key(|entry| entry.spec.full_name());
        entries
    }

    /// These pools exist. An endpoint that names no pool is in the first.
    pub fn set_pools(&self, pools: Vec<String>) {
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// What the endpoints of each pool say together.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolFigures> {
        let names = self.pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut members: BTreeMap<String, Vec<Member<'_>>> =
            names.iter().map(|name| (name.clone(), Vec::new())).collect();
        let entries = self.lock();
        for entry in entries.values() {
            let health = entry.health.as_ref();
            let member = Member {
                namespace: &entry.spec.namespace,
                name: &entry.spec.name,
                ready: health.and_then(Health::availability) == Some(Availability::Ready),
                load: health.and_then(Health::measured).map(|m| m.load).unwrap_or_default(),
            };
            let own = &entry.spec.pools;
            let of = if own.is_empty() { names.get(..1).unwrap_or_default() } else { own };
            for pool in of {
                if let Some(members) = members.get_mut(pool) {
                    members.push(member);
                }
            }
        }
        pools::figures(&members)
    }

    /// Counts by state, and of signals that ready endpoints lack.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for entry in self.lock().values() {
            match entry.health.as_ref().and_then(Health::availability) {
                None => census.pending += 1,
                Some(Availability::Out) => census.out += 1,
                Some(Availability::Ready) => {
                    census.ready += 1;
                    let measured = entry.health.as_ref().and_then(Health::measured);
                    let load = measured.map(|m| m.load).unwrap_or_default();
                    census.no_waiting += u32::from(load.waiting.is_none());
                    census.no_running += u32::from(load.running.is_none());
                    census.no_kv_usage += u32::from(load.kv_usage.is_none());
                }
            }
        }
        census
    }
}
