//! The replay socket.
//!
//! A request is `["", start as 8 bytes big-endian]`; the answers are one message per batch,
//! `["", topic, seq, payload]`, and an end mark with the sequence number -1 and an empty payload.
//! vLLM 0.16 leaves the topic out.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::oneshot;
use zeromq::{RouterSocket, SocketRecv as _, SocketSend as _, ZmqMessage};

use super::encoding::Encoding;
use super::line::{Kept, Line};
use super::source::close;
use crate::replica::lock;

const END: [u8; 8] = [0xff; 8];

/// What answers are made of.
pub(super) struct Answers {
    pub(super) topic: Bytes,
    pub(super) encoding: Encoding,
    pub(super) line: Line,
    pub(super) kept: Arc<Mutex<Kept>>,
}

/// Answers requests until told to stop.
pub(super) async fn serve(
    mut socket: RouterSocket,
    answers: Answers,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let request = tokio::select! {
            request = socket.recv() => request,
            _ = &mut stopped => break,
        };
        let Ok(request) = request else { break };
        let Some((peer, start)) = read(&request) else { continue };
        if answers.line.faults().replay_silent {
            continue;
        }
        tokio::select! {
            () = replay(&mut socket, &answers, &peer, start) => {}
            _ = &mut stopped => break,
        }
    }
    close(socket).await;
}

async fn replay(socket: &mut RouterSocket, answers: &Answers, peer: &Bytes, start: u64) {
    let batches = lock(&answers.kept).since(start);
    for (seq, payload) in batches {
        let seq = Bytes::copy_from_slice(&seq.to_be_bytes());
        let message = answer(peer, &answers.topic, answers.encoding, seq, payload);
        // A client that left needs no answer.
        if socket.send(message).await.is_err() {
            return;
        }
    }
    let end = Bytes::from_static(&END);
    let _ = socket.send(answer(peer, &Bytes::new(), answers.encoding, end, Bytes::new())).await;
}

/// Who asks, and from which number on; anything else than three frames is ignored, as in vLLM.
fn read(request: &ZmqMessage) -> Option<(Bytes, u64)> {
    let frames: Vec<&Bytes> = request.iter().collect();
    let [peer, empty, start] = frames[..] else { return None };
    let start = <[u8; 8]>::try_from(&start[..]).ok().filter(|_| empty.is_empty())?;
    Some((peer.clone(), u64::from_be_bytes(start)))
}

fn answer(
    peer: &Bytes,
    topic: &Bytes,
    encoding: Encoding,
    seq: Bytes,
    payload: Bytes,
) -> ZmqMessage {
    let mut message = ZmqMessage::from(peer.clone());
    message.push_back(Bytes::new());
    if encoding == Encoding::Map {
        message.push_back(topic.clone());
    }
    message.push_back(seq);
    message.push_back(payload);
    message
}
