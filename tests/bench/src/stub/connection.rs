//! One connection of the stub.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

use super::answers::{Answer, Wish, response};
use super::engines::Engines;
use crate::http::{Head, read_head};

/// Time between two chunks of a long answer.
const PACE: Duration = Duration::from_millis(1);
const BUFFER: usize = 256 << 10;

/// Serves requests to engine `index` until the client goes.
pub(super) async fn serve(
    mut socket: TcpStream,
    index: usize,
    engines: &Engines,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    while let Some(mut head) = read_head(&mut socket, &mut buffer).await? {
        let mut wish = Wish::default();
        while !head.body.done() {
            if buffer.is_empty() && socket.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            let own = head.body.feed(&buffer, |data| wish.feed(data));
            buffer.drain(..own);
            if head.body.broken() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        if head.first == "POST" {
            send(&mut socket, engines.answers().to(&wish)).await?;
        } else {
            let page = page(&head, index, engines).await;
            socket.write_all(&page).await?;
        }
        if head.close {
            return Ok(());
        }
    }
    Ok(())
}

async fn send(socket: &mut TcpStream, answer: Answer<'_>) -> io::Result<()> {
    let (head, chunks, paced) = match answer {
        Answer::Whole(answer) => return socket.write_all(answer).await,
        Answer::Chunks { head, chunks, paced } => (head, chunks, paced),
    };
    if !paced {
        return socket.write_all(&[head, &chunks.concat()].concat()).await;
    }
    socket.write_all(head).await?;
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for chunk in chunks {
        ticks.tick().await;
        socket.write_all(chunk).await?;
    }
    Ok(())
}

async fn page(head: &Head, index: usize, engines: &Engines) -> Vec<u8> {
    let (path, query) = head.second.split_once('?').unwrap_or((&head.second, ""));
    let json = match path {
        "/metrics" => return engines.metrics().to_vec(),
        "/kv_event_sources" => engines.sources(index),
        "/bench/hold" => engines.hold(query).await,
        "/bench/fill" => engines.fill(query).await,
        _ => serde_json::json!({"status": "ok", "object": "list", "data": []}),
    };
    response("application/json", &json.to_string())
}
