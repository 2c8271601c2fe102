//! A consumer of cache events.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rmpv::Value;
use zeromq::{DealerSocket, Socket as _, SocketRecv as _, SocketSend as _, SubSocket, ZmqMessage};

use super::{Sim, chat, long_text, post};

/// One message of the PUB socket or of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub topic: String,
    pub seq: u64,
    pub payload: Value,
}

impl Batch {
    fn new(topic: &[u8], seq: &[u8], payload: &[u8]) -> Self {
        Self {
            topic: String::from_utf8(topic.to_vec()).unwrap(),
            seq: u64::from_be_bytes(seq.try_into().unwrap()),
            payload: decode(payload),
        }
    }

    pub fn events(&self) -> &[Value] {
        self.payload.as_array().unwrap()[1].as_array().unwrap()
    }

    /// `stored:N`, `removed` or `cleared` of each event.
    pub fn kinds(&self) -> Vec<String> {
        self.events().iter().map(kind).collect()
    }
}

fn kind(event: &Value) -> String {
    match field(event, "type").as_str().unwrap() {
        "BlockStored" => {
            format!("stored:{}", field(event, "block_hashes").as_array().unwrap().len())
        }
        "BlockRemoved" => "removed".to_owned(),
        "AllBlocksCleared" => "cleared".to_owned(),
        other => panic!("{other}"),
    }
}

pub fn decode(mut payload: &[u8]) -> Value {
    let value = rmpv::decode::read_value(&mut payload).unwrap();
    assert!(payload.is_empty(), "nothing follows a batch");
    value
}

pub fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
    let map = event.as_map().unwrap();
    map.iter().find(|(key, _)| key.as_str() == Some(name)).map_or(&Value::Nil, |(_, value)| value)
}

/// Tokens of an event.
pub fn tokens(event: &Value) -> Vec<u64> {
    field(event, "token_ids").as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The value with its timestamp as 0.0 and every block hash replaced by the order in which hashes
/// are first seen, so that two engines with different hashes say the same.
pub fn normalised(payload: &Value) -> Value {
    fn hash(value: &Value, seen: &mut BTreeMap<String, u64>) -> Value {
        let next = seen.len() as u64;
        match value {
            Value::Nil => Value::Nil,
            // Its kind is kept: a number stays a number, bytes stay bytes.
            Value::Binary(_) => {
                Value::Binary(seen.entry(value.to_string()).or_insert(next).to_be_bytes().to_vec())
            }
            _ => Value::from(*seen.entry(value.to_string()).or_insert(next)),
        }
    }
    let mut payload = payload.clone();
    let mut seen = BTreeMap::new();
    let Value::Array(parts) = &mut payload else { panic!("{payload}") };
    assert!(matches!(parts[0], Value::F64(at) if at > 1.7e9), "seconds since 1970");
    parts[0] = Value::F64(0.0);
    for event in parts[1].as_array().unwrap().clone().iter().enumerate().map(|(at, _)| at) {
        let Value::Array(events) = &mut parts[1] else { unreachable!() };
        let Value::Map(fields) = &mut events[event] else { panic!("a map is expected") };
        for (key, value) in fields {
            match key.as_str().unwrap() {
                "parent_block_hash" => *value = hash(value, &mut seen),
                "block_hashes" => {
                    let list = value.as_array().unwrap();
                    *value = Value::Array(list.iter().map(|one| hash(one, &mut seen)).collect());
                }
                _ => {}
            }
        }
    }
    payload
}

pub struct Subscriber {
    socket: SubSocket,
}

impl Subscriber {
    /// Listens to a replica whose subscription is known to be in force: batches of requests made for
    /// that purpose have come.
    pub async fn start(sim: &Sim, index: usize) -> Self {
        let port = sim.state(index).await["kv_events"]["port"].as_u64().unwrap();
        let mut socket = SubSocket::new();
        socket.connect(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
        socket.subscribe("kv@").await.unwrap();
        let mut subscriber = Self { socket };
        for attempt in 0.. {
            let text = format!("warming up {attempt} {}", long_text(80));
            let body = chat(&text, serde_json::json!({"max_tokens": 1}));
            post(sim.addr(index), "/v1/chat/completions", &body).await.unwrap();
            let soon = tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await;
            let Ok(mut batch) = soon else { continue };
            let made = sim.state(index).await["kv_events"]["batches"].as_u64().unwrap();
            while batch.seq + 1 < made {
                batch = subscriber.next().await;
            }
            break;
        }
        subscriber
    }

    pub async fn next(&mut self) -> Batch {
        let message = self.socket.recv().await.unwrap();
        let frames: Vec<&Bytes> = message.iter().collect();
        let [topic, seq, payload] = frames[..] else { panic!("{frames:?}") };
        Batch::new(topic, seq, payload)
    }
}

/// Frames of the answers to one replay request, the end mark last.
pub async fn replay_frames(sim: &Sim, index: usize, start: u64) -> Vec<Vec<Bytes>> {
    let port = sim.state(index).await["kv_events"]["replay_port"].as_u64().unwrap();
    let mut socket = DealerSocket::new();
    socket.connect(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
    let mut request = ZmqMessage::from(Bytes::new());
    request.push_back(Bytes::copy_from_slice(&start.to_be_bytes()));
    socket.send(request).await.unwrap();
    let mut answers = Vec::new();
    loop {
        let frames = socket.recv().await.unwrap().into_vec();
        let end = frames[frames.len() - 2][..] == [0xff; 8];
        answers.push(frames);
        if end {
            return answers;
        }
    }
}

/// The batches of a replay.
pub async fn replay(sim: &Sim, index: usize, start: u64) -> Vec<Batch> {
    let mut answers = replay_frames(sim, index, start).await;
    assert_eq!(answers.pop().unwrap(), [&b""[..], b"", &[0xff; 8], b""]);
    answers
        .iter()
        .map(|frames| {
            let [empty, topic, seq, payload] = &frames[..] else { panic!("{frames:?}") };
            assert!(empty.is_empty());
            Batch::new(topic, seq, payload)
        })
        .collect()
}
