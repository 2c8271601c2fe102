//! Where an engine publishes, from its own answer: `GET /kv_event_sources` of vLLM.
//!
//! ```json
//! {"0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",
//!        "replay_endpoint": "tcp://*:5558", "topic": "kv@10.0.0.1:8000@model", …}}
//! ```
//!
//! Only publishers at the engine's own address are followed: an answer must not send the agent to
//! other hosts.

use super::source::PublisherAddress;
use crate::config::kv_events::{MAX_RANKS, Ports};
use crate::scrape::client::{Client, Fetch};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const PATH: &str = "/kv_event_sources";
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read at most.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// A publisher of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Its data-parallel rank.
    pub rank: u16,
    /// Where it is.
    pub address: PublisherAddress,
    /// The topic that it says it uses.
    pub topic: Option<String>,
}

/// Why nothing was learned from an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverError {
    /// It could not be asked.
    #[error("the engine did not answer")]
    NoAnswer,
    /// It answered with another status than 200.
    #[error(
        "the engine does not know /kv_event_sources; give `port` in the KVEvents document, or \
         label the endpoint"
    )]
    NotKnown,
    /// The answer is no list of sources.
    #[error("the engine's answer to /kv_event_sources cannot be read; give `port` instead")]
    Unreadable,
}

/// Asks the engine at `address`.
///
/// # Errors
/// If there is no answer, or none that can be read.
pub async fn ask(address: SocketAddr) -> Result<Vec<Publisher>, DiscoverError> {
    match Client::new(address).get(PATH, TIMEOUT).await {
        Fetch::Body(body) => read(&body, address.ip()),
        Fetch::Unreadable => Err(DiscoverError::NotKnown),
        Fetch::Untried | Fetch::Refused | Fetch::NoAnswer => Err(DiscoverError::NoAnswer),
    }
}

/// The publishers at ports that the configuration gives.
#[must_use]
pub fn at_ports(ports: Ports, own: IpAddr) -> Vec<Publisher> {
    let rank = |rank: u16| {
        let live = SocketAddr::new(own, ports.live.checked_add(rank)?);
        let replay = ports.replay.and_then(|port| port.checked_add(rank));
        let address =
            PublisherAddress { live, replay: replay.map(|port| SocketAddr::new(own, port)) };
        Some(Publisher { rank, address, topic: None })
    };
    (0..ports.ranks.min(MAX_RANKS)).filter_map(rank).collect()
}

#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    topic: Option<String>,
}

/// Reads an answer of the engine at `own`: its publishers, by rank.
///
/// # Errors
/// If it is not an object of sources by rank.
pub fn read(body: &[u8], own: IpAddr) -> Result<Vec<Publisher>, DiscoverError> {
    if body.len() > MAX_ANSWER_BYTES {
        return Err(DiscoverError::Unreadable);
    }
    let sources: BTreeMap<u16, Source> =
        serde_json::from_slice(body).map_err(|_| DiscoverError::Unreadable)?;
    let publishers = sources.into_iter().filter(|(rank, _)| *rank < MAX_RANKS);
    Ok(publishers
        .filter_map(|(rank, source)| {
            let zmq = source.publisher.as_deref() == Some("zmq");
            if !source.enable_kv_cache_events || !zmq {
                return None;
            }
            let live = own_address(&source.endpoint?, own)?;
            let replay = source.replay_endpoint.and_then(|endpoint| own_address(&endpoint, own));
            Some(Publisher {
                rank,
                address: PublisherAddress { live, replay },
                topic: source.topic,
            })
        })
        .collect())
}

/// The address of a ZeroMQ endpoint, if it is one of this host: any address of it, or this one.
fn own_address(endpoint: &str, own: IpAddr) -> Option<SocketAddr> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let ours = match bare.parse::<IpAddr>() {
        Ok(ip) => ip.is_unspecified() || ip == own,
        Err(_) => bare == "*",
    };
    ours.then(|| SocketAddr::new(own, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn own(port: u16) -> SocketAddr {
        SocketAddr::new(OWN, port)
    }

    #[test]
    fn what_a_real_engine_of_two_ranks_answers() {
        // vLLM 0.32.0, --data-parallel-size 2.
        let body = br#"{"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5588","replay_endpoint":"tcp://*:5598","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv@127.0.0.1:8030@tiny"},"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5587","replay_endpoint":"tcp://*:5597","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv@127.0.0.1:8030@tiny"}}"#;
        let publisher = |rank, live, replay| Publisher {
            rank,
            address: PublisherAddress { live: own(live), replay: Some(own(replay)) },
            topic: Some("kv@127.0.0.1:8030@tiny".into()),
        };
        let expected = vec![publisher(0, 5587, 5597), publisher(1, 5588, 5598)];
        assert_eq!(read(body, OWN), Ok(expected));
    }

    #[test]
    fn only_publishers_at_the_engines_own_address_count() {
        let at = |endpoint: &str| {
            let source = json!({"enable_kv_cache_events": true, "publisher": "zmq",
                "endpoint": endpoint, "replay_endpoint": null});
            let body = json!({"0": source}).to_string();
            read(body.as_bytes(), OWN).unwrap().first().map(|found| found.address.live)
        };
        for endpoint in ["tcp://*:7", "tcp://0.0.0.0:7", "tcp://[::]:7", "tcp://10.0.0.1:7"] {
            assert_eq!(at(endpoint), Some(own(7)), "{endpoint}");
        }
        for endpoint in [
            "tcp://10.0.0.2:7",
            "tcp://router:7",
            "tcp://*:0",
            "tcp://*:70000",
            "tcp://*",
            "ipc:///tmp/x",
            "inproc://x",
            "",
        ] {
            assert_eq!(at(endpoint), None, "{endpoint}");
        }
    }

    #[test]
    fn sources_that_cannot_be_followed_are_passed_over_and_nonsense_is_refused() {
        let good =
            json!({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:7"});
        let off = json!({"enable_kv_cache_events": false, "publisher": "null"});
        let other =
            json!({"enable_kv_cache_events": true, "publisher": "x", "endpoint": "tcp://*:7"});
        let body = json!({"0": off, "1": good, "2": other, "64": good}).to_string();
        let ranks: Vec<_> = read(body.as_bytes(), OWN).unwrap().iter().map(|p| p.rank).collect();
        assert_eq!(ranks, [1]);
        assert_eq!(read(b"{}", OWN), Ok(vec![]));
        let large = vec![b' '; MAX_ANSWER_BYTES + 1];
        for body in [&b"[]"[..], b"{\"x\": {}}", b"{\"0\": 5}", b"<html>", b"", &large] {
            assert_eq!(read(body, OWN), Err(DiscoverError::Unreadable));
        }
    }

    #[test]
    fn configured_ports_count_up_by_rank() {
        let ports = Ports { live: 5557, replay: Some(5657), ranks: 2 };
        let found: Vec<_> = at_ports(ports, OWN)
            .iter()
            .map(|p| (p.rank, p.address.live, p.address.replay))
            .collect();
        assert_eq!(found, [(0, own(5557), Some(own(5657))), (1, own(5558), Some(own(5658)))]);
        assert_eq!(at_ports(Ports { live: 65535, ..ports }, OWN).len(), 1);
    }
}
