//! A fake publisher of KV events on real ZeroMQ sockets, with every way to lose batches.
//!
//! The sockets are the `zeromq` crate's, so that the agent's own client meets another hand's ZMTP.

use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;
use zeromq::ZmqMessage;
use zeromq::{Endpoint, PubSocket, RouterSocket, Socket as _, SocketRecv as _, SocketSend as _};

/// How replays are answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replays {
    /// Without the topic's frame, as vLLM up to 0.16.
    pub(crate) without_topic: bool,
    /// These numbers are left out.
    pub(crate) holes: BTreeSet<u64>,
    /// What is before this number is no longer there.
    pub(crate) first: u64,
    /// How often it was asked.
    pub(crate) asked: usize,
}

type Log = Arc<Mutex<Vec<Bytes>>>;

pub(crate) struct Publisher {
    live: PubSocket,
    pub(crate) live_port: u16,
    pub(crate) replay_port: u16,
    topic: Bytes,
    log: Log,
    pub(crate) replays: Arc<Mutex<Replays>>,
    router: JoinHandle<()>,
}

impl Publisher {
    /// On ports of its own; 0 = any.
    pub(crate) async fn start(topic: &'static str, live_port: u16, replay_port: u16) -> Self {
        let mut live = PubSocket::new();
        let live_port = bind(&mut live, live_port).await;
        let mut router = RouterSocket::new();
        let replay_port = bind(&mut router, replay_port).await;
        let (log, replays) = (Log::default(), Arc::<Mutex<Replays>>::default());
        let topic = Bytes::from_static(topic.as_bytes());
        let answering = answer(router, topic.clone(), Arc::clone(&log), Arc::clone(&replays));
        let router = tokio::spawn(answering);
        Self { live, live_port, replay_port, topic, log, replays, router }
    }

    /// The same engine's successor: same ports, nothing else.
    pub(crate) async fn restart(self, topic: &'static str) -> Self {
        let (live_port, replay_port) = (self.live_port, self.replay_port);
        self.stop().await;
        Self::start(topic, live_port, replay_port).await
    }

    pub(crate) async fn stop(mut self) {
        self.router.abort();
        let _ = (&mut self.router).await;
        let errors = self.live.unbind_all().await;
        assert!(errors.is_empty(), "{errors:?}");
    }

    /// A batch that reaches its subscribers.
    pub(crate) async fn publish(&mut self, events: &Value) {
        let seq = self.lose(events);
        let payload = self.log.lock().unwrap()[usize::try_from(seq).unwrap()].clone();
        let seq = Bytes::copy_from_slice(&seq.to_be_bytes());
        let frames = vec![self.topic.clone(), seq, payload];
        self.live.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
    }

    /// A batch that is dropped on its way. Returns its number.
    pub(crate) fn lose(&mut self, events: &Value) -> u64 {
        let mut log = self.log.lock().unwrap();
        let seq = u64::try_from(log.len()).unwrap();
        // Its time tells batches of the same content apart, as a real engine's does.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let batch = rmpv::ext::to_value(serde_json::json!([now, events, 0])).unwrap();
        let mut payload = Vec::new();
        rmpv::encode::write_value(&mut payload, &batch).unwrap();
        log.push(payload.into());
        seq
    }

    pub(crate) fn asked(&self) -> usize {
        self.replays.lock().unwrap().asked
    }
}

async fn bind(socket: &mut impl zeromq::Socket, port: u16) -> u16 {
    match socket.bind(&format!("tcp://127.0.0.1:{port}")).await.unwrap() {
        Endpoint::Tcp(_, port) => port,
        other => panic!("{other}"),
    }
}

/// Answers as vLLM's replay thread does.
async fn answer(mut router: RouterSocket, topic: Bytes, log: Log, replays: Arc<Mutex<Replays>>) {
    loop {
        let question = router.recv().await.unwrap().into_vec();
        let [peer, delimiter, from] = question.as_slice() else { panic!("{question:?}") };
        assert!(delimiter.is_empty());
        let from = u64::from_be_bytes(from.as_ref().try_into().unwrap());
        let (how, batches) = {
            let mut how = replays.lock().unwrap();
            how.asked += 1;
            (how.clone(), log.lock().unwrap().clone())
        };
        let batches = (0u64..).zip(batches);
        let kept =
            batches.filter(|(seq, _)| *seq >= from.max(how.first) && !how.holes.contains(seq));
        for (seq, payload) in kept.chain([(u64::MAX, Bytes::new())]) {
            let mut frames = vec![peer.clone(), Bytes::new()];
            if !how.without_topic {
                frames.push(if payload.is_empty() { Bytes::new() } else { topic.clone() });
            }
            frames.extend([Bytes::copy_from_slice(&seq.to_be_bytes()), payload]);
            router.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
        }
    }
}
