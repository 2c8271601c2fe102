//! The task that follows one publisher: its connection, its replays, and what comes of both.
//!
//! The decisions are [`Sequence`]'s; here are the sockets and the clock.

use super::inbox::{Gone, News, Outlet, SourceId};
use super::sequence::{Effect, Sequence};
use super::zmtp::{Connection, Role, ZmtpError};
use bytes::Bytes;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::debug;

/// A publisher that cannot be reached for so long tells nothing precise any more.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);

/// Longest time for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Answers of a replay that are read ahead.
const REPLAY_AHEAD: usize = 64;
/// Bytes of a topic that are read as a model's name at most.
const MAX_TOPIC_BYTES: usize = 1024;

/// Where a publisher is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublisherAddress {
    /// Its live stream.
    pub live: SocketAddr,
    /// Where it answers replays, if it does.
    pub replay: Option<SocketAddr>,
}

/// One publisher to follow.
#[derive(Debug)]
pub struct Source {
    /// Whose it is.
    pub id: SourceId,
    /// Where it is.
    pub address: PublisherAddress,
    /// What topics begin with that are wanted.
    pub topic_filter: String,
    /// The model that its topic names, if that was said in advance.
    pub model: Option<Arc<str>>,
    /// Where reports go.
    pub outlet: Outlet,
    /// Told whenever the connection is lost.
    pub lost: Arc<Notify>,
}

impl Source {
    /// Follows the publisher until nobody takes the reports any more or the task is aborted.
    pub async fn run(self) {
        let replays = self.address.replay.is_some();
        let model = self.model.clone();
        let (sequence, topic) = (Sequence::new(replays), Bytes::new());
        let mut follower = Follower { source: self, sequence, topic, model, down_since: None };
        // The worker being gone is the only way out.
        let Err(Gone) = follower.run().await;
    }
}

struct Follower {
    source: Source,
    sequence: Sequence,
    /// The last topic, and the model that it names.
    topic: Bytes,
    model: Option<Arc<str>>,
    /// Since when it is not connected and whole, if that is not told yet.
    down_since: Option<Instant>,
}

impl Follower {
    async fn run(&mut self) -> Result<std::convert::Infallible, Gone> {
        let address = self.source.address.live;
        self.down_since = Some(Instant::now());
        let mut backoff = FIRST_BACKOFF;
        self.tell(News::Begin).await?;
        loop {
            match tokio::time::timeout(CONNECT, self.connect()).await {
                Ok(Ok(connection)) => {
                    let began = Instant::now();
                    let error = self.follow(connection).await?;
                    debug!(%address, %error, "connection to the event publisher lost");
                    self.sequence.disconnected();
                    self.source.lost.notify_one();
                    self.down_since.get_or_insert_with(Instant::now);
                    // One that always ends at once must not be hammered.
                    if began.elapsed() > MAX_BACKOFF {
                        backoff = FIRST_BACKOFF;
                    }
                }
                Ok(Err(error)) => debug!(%address, %error, "event publisher not reached"),
                Err(_) => debug!(%address, "event publisher did not answer in time"),
            }
            if self.down_since.is_some_and(|since| since.elapsed() >= UNREACHABLE_AFTER) {
                self.down_since = None;
                self.sequence = Sequence::new(self.source.address.replay.is_some());
                self.tell(News::Unreachable).await?;
            }
            tokio::time::sleep(jittered(backoff)).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn connect(&self) -> Result<Connection, ZmtpError> {
        let mut connection = Connection::open(self.source.address.live, Role::Sub).await?;
        connection.subscribe(&self.source.topic_filter).await?;
        Ok(connection)
    }

    /// Follows a connection to its end.
    async fn follow(&mut self, mut live: Connection) -> Result<ZmtpError, Gone> {
        let mut replay: Option<Replay> = None;
        let mut whole = false;
        let mut effects = Vec::new();
        self.sequence.connected(Instant::now(), &mut effects);
        loop {
            self.act(&mut effects, &mut replay).await?;
            if self.sequence.is_whole() {
                replay = None;
                if !std::mem::replace(&mut whole, true) {
                    self.down_since = None;
                    let model = self.model.clone();
                    self.tell(News::Whole { model }).await?;
                }
            }
            let deadline = self.sequence.deadline();
            tokio::select! {
                message = live.receive() => match message {
                    Ok(frames) => self.live(&frames, &mut effects).await?,
                    Err(error) => return Ok(error),
                },
                answer = next_answer(&mut replay) => self.replayed(answer, &mut effects).await?,
                () = until(deadline) => self.sequence.tick(Instant::now(), &mut effects),
            }
        }
    }

    async fn live(&mut self, frames: &[Bytes], effects: &mut Vec<Effect>) -> Result<(), Gone> {
        match numbered(frames).filter(|_| frames.len() == 3) {
            Some((topic, seq, payload)) => {
                self.note_topic(topic);
                self.sequence.live(seq, payload.clone(), Instant::now(), effects);
                Ok(())
            }
            None => self.tell(News::Malformed).await,
        }
    }

    async fn replayed(&mut self, answer: Answer, effects: &mut Vec<Effect>) -> Result<(), Gone> {
        let now = Instant::now();
        match answer {
            Answer::Message(frames) => match numbered(&frames) {
                Some((_, u64::MAX, payload)) if payload.is_empty() => {
                    self.sequence.replay_ended(now, effects);
                }
                Some((topic, seq, payload)) => {
                    self.note_topic(topic);
                    self.sequence.replayed(seq, payload.clone(), now, effects);
                }
                None => self.tell(News::Malformed).await?,
            },
            Answer::Failed => self.sequence.replay_failed(now, effects),
        }
        Ok(())
    }

    /// Does what the sequence wants, in order.
    async fn act(
        &mut self,
        effects: &mut Vec<Effect>,
        replay: &mut Option<Replay>,
    ) -> Result<(), Gone> {
        for effect in effects.drain(..) {
            let news = match effect {
                Effect::Apply(payload) => {
                    let space = self.source.outlet.space(payload.len()).await;
                    News::Batch { payload, model: self.model.clone(), space }
                }
                Effect::Void(cause) => News::Void(cause),
                Effect::Count(note) => News::Count(note),
                Effect::AskReplay { from } => {
                    *replay = self.source.address.replay.map(|address| Replay::ask(address, from));
                    continue;
                }
            };
            self.tell(news).await?;
        }
        Ok(())
    }

    async fn tell(&self, news: News) -> Result<(), Gone> {
        self.source.outlet.report(self.source.id, news).await
    }

    fn note_topic(&mut self, topic: &Bytes) {
        // Replays of older engines have no topic: then the last one stands.
        if topic.is_empty() || *topic == self.topic {
            return;
        }
        self.topic = Bytes::copy_from_slice(topic.get(..MAX_TOPIC_BYTES).unwrap_or(topic));
        if let Some(model) = topic_model(&self.topic) {
            self.model = Some(Arc::from(model));
        }
    }
}

/// The model in a topic `kv@<pod>@<model>`. A name with `@` in it is not found this way.
#[must_use]
pub fn topic_model(topic: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(topic).ok()?.split('@');
    let (Some(_), Some(_), Some(model), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    (!model.is_empty()).then_some(model)
}

/// Topic, number and payload of a live message, or of an answer of a replay: an empty frame
/// before them, and the topic left out by vLLM up to 0.16.
fn numbered(frames: &[Bytes]) -> Option<(&Bytes, u64, &Bytes)> {
    let ([_, topic, seq, payload] | [topic, seq, payload]) = frames else { return None };
    let seq = u64::from_be_bytes(*seq.first_chunk().filter(|_| seq.len() == 8)?);
    Some((topic, seq, payload))
}

enum Answer {
    Message(Vec<Bytes>),
    Failed,
}

/// A replay under way, on a connection of its own that ends with it: no answer to an earlier
/// question can come among those to this one.
struct Replay {
    answers: mpsc::Receiver<Vec<Bytes>>,
    task: JoinHandle<()>,
}

impl Replay {
    fn ask(address: SocketAddr, from: u64) -> Self {
        let (to, answers) = mpsc::channel(REPLAY_AHEAD);
        let task = tokio::spawn(async move {
            if let Err(error) = forward(address, from, to).await {
                debug!(%address, %error, "replay broke off");
            }
        });
        Self { answers, task }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Hands on the answers until nobody wants more. The sequence limits the time.
async fn forward(
    address: SocketAddr,
    from: u64,
    to: mpsc::Sender<Vec<Bytes>>,
) -> Result<(), ZmtpError> {
    let mut connection = Connection::open(address, Role::Dealer).await?;
    connection.send(&[b"", &from.to_be_bytes()]).await?;
    loop {
        let frames = connection.receive().await?;
        if to.send(frames).await.is_err() {
            return Ok(());
        }
    }
}

async fn next_answer(replay: &mut Option<Replay>) -> Answer {
    let Some(under_way) = replay else { return std::future::pending().await };
    match under_way.answers.recv().await {
        Some(frames) => Answer::Message(frames),
        None => {
            *replay = None;
            Answer::Failed
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Up to a quarter longer, so that all sources of a fleet do not come at once.
fn jittered(wait: Duration) -> Duration {
    let random = u32::try_from(RandomState::new().hash_one(0) & 0xff).unwrap_or(0);
    wait.saturating_add(wait / 1024 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_three_parts_names_the_model() {
        for (topic, model) in [
            ("kv@10.0.0.1:8000@Qwen/Qwen3-8B", Some("Qwen/Qwen3-8B")),
            ("kv@pod@", None),
            ("kv@pod", None),
            ("kv@pod@a@b", None),
            ("", None),
        ] {
            assert_eq!(topic_model(topic.as_bytes()), model, "{topic}");
        }
        assert_eq!(topic_model(b"kv@pod@\xff"), None);
    }

    #[test]
    fn both_layouts_of_replays_are_read() {
        let frame = |bytes: &'static [u8]| Bytes::from_static(bytes);
        let (topic, seq, payload) = (frame(b"kv@"), frame(&[0, 0, 0, 0, 0, 0, 0, 7]), frame(b"x"));
        let empty = frame(b"");
        let read = |frames: &[Bytes]| {
            numbered(frames).map(|(topic, seq, payload)| (topic.clone(), seq, payload.clone()))
        };
        let with = |topic: &Bytes| Some((topic.clone(), 7, payload.clone()));
        assert_eq!(read(&[topic.clone(), seq.clone(), payload.clone()]), with(&topic));
        assert_eq!(
            read(&[empty.clone(), topic.clone(), seq.clone(), payload.clone()]),
            with(&topic)
        );
        assert_eq!(read(&[empty.clone(), seq.clone(), payload.clone()]), with(&empty));
        assert_eq!(read(&[topic.clone(), frame(b"seven"), payload.clone()]), None);
        assert_eq!(read(&[seq, payload]), None);
        assert_eq!(read(&[]), None);
    }
}
