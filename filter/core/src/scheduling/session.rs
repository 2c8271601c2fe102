//! Sessions: which request belongs to which, and which endpoint each is at.

use super::{Candidate, Headers, Request, Situation};
use crate::base64;
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{
    AgentIdentity, Filter, Scorer, SessionAffinity, SessionId, SessionSource, SessionStrategy,
};
use warmroute_shared_state::policy::scheduler::{Named, Scheduler};

/// Sessions that a table remembers at least; it never holds twice as many.
const MANY_SESSIONS: usize = 32_768;

/// What names sessions besides headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionIds<'r> {
    producers: &'r [Named<SessionId>],
    agent: Option<&'r AgentIdentity>,
}

impl<'r> SessionIds<'r> {
    /// Those of a scheduler.
    #[must_use]
    pub fn of(scheduler: &'r Scheduler) -> Self {
        Self { producers: &scheduler.session_ids, agent: scheduler.agent_identity.as_ref() }
    }

    fn attribute<'a>(self, request: &Request<'a>, name: &str, producer: &str) -> Option<&'a str> {
        if name == "agent-identity" {
            return agent_of(self.agent?, request.headers);
        }
        let named = self.producers.iter().find(|known| known.name == producer)?;
        match &named.plugin {
            SessionId::Header(header) => request.header(header),
            SessionId::Cookie(cookie) => cookie_value(request.header("cookie")?, cookie),
        }
    }
}

/// The agent that a request comes from.
#[must_use]
pub fn agent_of<'a>(identity: &AgentIdentity, headers: &'a dyn Headers) -> Option<&'a str> {
    identity.headers.iter().filter_map(|name| headers.header(name)).find(|value| !value.is_empty())
}

fn cookie_value<'a>(header: &'a str, cookie: &str) -> Option<&'a str> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| name.trim() == cookie).map(|(_, value)| value).next()
}

/// The session of a request: a hash of its id. `None` if it names none.
#[must_use]
pub fn session_of(
    request: &Request<'_>,
    sources: &[SessionSource],
    ids: SessionIds<'_>,
) -> Option<u64> {
    let id = sources.iter().find_map(|source| {
        let id = match source {
            SessionSource::Header(name) => request.header(name),
            SessionSource::Attribute { attribute, producer } => {
                ids.attribute(request, attribute, producer)
            }
        };
        id.map(str::trim).filter(|id| !id.is_empty())
    })?;
    Some(xxhash_rust::xxh3::xxh3_64(id.as_bytes()))
}

/// Session plugins of all profiles, by the names of their instances; each once.
pub(super) fn session_plugins(scheduler: &Scheduler) -> Vec<(&str, &SessionAffinity)> {
    let mut plugins: Vec<(&str, &SessionAffinity)> = Vec::new();
    for profile in &scheduler.profiles {
        let filters = profile.filters.iter().filter_map(|filter| match &filter.plugin {
            Filter::SessionAffinity(affinity) => Some((filter.name.as_str(), affinity)),
            _ => None,
        });
        let scorers = profile.scorers.iter().filter_map(|scorer| match &scorer.plugin {
            Scorer::SessionAffinity(affinity) => Some((scorer.name.as_str(), affinity)),
            _ => None,
        });
        for (name, affinity) in filters.chain(scorers) {
            if plugins.iter().all(|(known, _)| *known != name) {
                plugins.push((name, affinity));
            }
        }
    }
    plugins
}

/// Place of the candidate that the request's session is at. `instance` is the plugin's name.
pub(super) fn pinned(
    affinity: &SessionAffinity,
    instance: &str,
    situation: &Situation<'_, '_>,
    kept: &[usize],
) -> Option<usize> {
    let at = |found: &dyn Fn(&Candidate<'_>) -> bool| {
        kept.iter().copied().find(|at| situation.candidates.get(*at).is_some_and(found))
    };
    match &affinity.strategy {
        SessionStrategy::EncodedEndpoint { header } => {
            let name = endpoint_name(situation.request.header(header)?)?;
            at(&|candidate| candidate.name.as_bytes() == name)
        }
        SessionStrategy::SessionId { sources, ttl_ms } => {
            let session = session_of(situation.request, sources, situation.sessions)?;
            let table = situation.state.sessions(instance)?;
            let bound = table.get(session, situation.now_ms, *ttl_ms)?;
            at(&|candidate| candidate.id == bound)
        }
    }
}

/// Where sessions are, the unused forgotten first.
#[derive(Debug, Default)]
pub struct SessionTable {
    young: BTreeMap<u64, (EndpointId, u64)>,
    old: BTreeMap<u64, (EndpointId, u64)>,
}

impl SessionTable {
    /// The session's endpoint, unless it was unused for longer than `ttl_ms`.
    #[must_use]
    pub fn get(&self, session: u64, now_ms: u64, ttl_ms: u64) -> Option<EndpointId> {
        let (endpoint, used_ms) = self.young.get(&session).or_else(|| self.old.get(&session))?;
        (now_ms.saturating_sub(*used_ms) <= ttl_ms).then_some(*endpoint)
    }

    /// The session is at this endpoint, and in use.
    pub fn bind(&mut self, session: u64, endpoint: EndpointId, now_ms: u64) {
        if self.young.len() >= MANY_SESSIONS && !self.young.contains_key(&session) {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(session, (endpoint, now_ms));
    }
}

/// A longer token is not read: no name is as long.
const MAX_TOKEN_BYTES: usize = 1024;

/// What a client sends back to stay at the endpoint of this `namespace/name`: base64 of it.
#[must_use]
pub fn session_token(name: &str) -> String {
    base64::encode(name.as_bytes())
}

fn endpoint_name(token: &str) -> Option<Vec<u8>> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    base64::decode(token.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_token_is_base64_of_the_endpoints_name() {
            assert_eq!(session_token("/pod-b"), "L3BvZC1i");
            assert_eq!(endpoint_name("L3BvZC1i").as_deref(), Some(&b"/pod-b"[..]));
            assert_eq!(endpoint_name(&"A".repeat(2000)), None);
        }

        fn a_session_is_remembered_while_it_is_used() {
            let mut table = SessionTable::default();
            let here = EndpointId(7);
            table.bind(1, here, 1000);
            assert_eq!(table.get(1, 1300, 300), Some(here));
            assert_eq!(table.get(1, 1301, 300), None);
            table.bind(1, here, 1301);
            assert_eq!(table.get(1, 1600, 300), Some(here));
            assert_eq!(table.get(2, 1600, 300), None);
        }

        fn a_table_is_bounded_and_keeps_the_newest() {
            let mut table = SessionTable::default();
            for session in 0..5 * MANY_SESSIONS as u64 {
                table.bind(session, EndpointId(session), session);
                assert!(table.young.len() + table.old.len() <= 2 * MANY_SESSIONS);
            }
            let last = 5 * MANY_SESSIONS as u64 - 1;
            for session in last - MANY_SESSIONS as u64 + 1..=last {
                assert_eq!(table.get(session, last, u64::MAX), Some(EndpointId(session)));
            }
        }

        fn sessions_are_named_by_headers_cookies_and_agents() {
            let headers = [("x-a", " one "), ("x-b", ""), ("cookie", "a=b; sid=two; c=d"), ("session-id", "three")];
            let request = Request { target_model: "", prompt_blocks: 0, multimodal: false, headers: &headers };
            let producers = [
                Named { name: "by-cookie".to_owned(), plugin: SessionId::Cookie("sid".into()) },
                Named { name: "by-header".to_owned(), plugin: SessionId::Header("x-a".into()) },
            ];
            let agent = AgentIdentity { headers: vec!["x-b".into(), "session-id".into()] };
            let ids = SessionIds { producers: &producers, agent: Some(&agent) };
            let attribute = |attribute: &str, producer: &str| SessionSource::Attribute {
                attribute: attribute.into(),
                producer: producer.into(),
            };
            for (sources, expected) in [
                (vec![SessionSource::Header("x-a".into())], Some("one")),
                (vec![SessionSource::Header("x-b".into()), attribute("s", "by-cookie")], Some("two")),
                (vec![attribute("s", "by-header")], Some("one")),
                (vec![attribute("agent-identity", "")], Some("three")),
                (vec![attribute("s", "nobody"), SessionSource::Header("x-c".into())], None),
                (vec![], None),
            ] {
                let expected = expected.map(|id: &str| xxhash_rust::xxh3::xxh3_64(id.as_bytes()));
                assert_eq!(session_of(&request, &sources, ids), expected, "{sources:?}");
            }
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn any_name_survives_its_token(name in "\\PC{0,60}") {
            proptest::prop_assert_eq!(endpoint_name(&session_token(&name)), Some(name.into_bytes()));
        }

        #[test]
        fn any_token_is_read_or_not(token in "\\PC{0,60}") {
            let _ = endpoint_name(&token);
        }
    }
}
