//! The task that follows one publisher: its connection, its replays, and what comes of both.
//!
//! The decisions are [`Sequence`]'s; here are the sockets and the clock.

use super::inbox::{Gone, News, Outlet, SourceId};
use super::message::{Numbered, topic_model};
use super::sequence::{Effect, Sequence};
use super::zmtp::{Connection, Role, ZmtpError};
use bytes::Bytes;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// A publisher that cannot be reached for so long tells nothing precise any more.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);

/// Longest time for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Answers of a replay that are read ahead.
const REPLAY_AHEAD: usize = 8;
/// Time before a publisher of other topics is tried again.
const FOREIGN_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of a topic that are read at most.
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

/// Why a connection is not followed any longer.
enum End {
    Broken(ZmtpError),
    /// The publisher's topic is not one that is wanted. This one is.
    Foreign(String),
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
                    match self.follow(connection).await? {
                        End::Broken(error) => {
                            debug!(%address, %error, "connection to the event publisher lost");
                        }
                        End::Foreign(topic) => {
                            self.foreign(&topic).await?;
                            continue;
                        }
                    }
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

    /// A replay may bring what the live stream then would not: nothing of it counts.
    async fn foreign(&mut self, topic: &str) -> Result<(), Gone> {
        let (address, wanted) = (self.source.address.live, &self.source.topic_filter);
        warn!(
            %address, topic, wanted,
            "KV events not followed: the publisher's topic does not begin as `topicFilter` says"
        );
        self.sequence = Sequence::new(self.source.address.replay.is_some());
        self.down_since = None;
        self.tell(News::ForeignTopic).await?;
        tokio::time::sleep(jittered(FOREIGN_PAUSE)).await;
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, ZmtpError> {
        let mut connection = Connection::open(self.source.address.live, Role::Sub).await?;
        // All of it: a publisher whose topics are others must not look like one that is idle.
        connection.subscribe("").await?;
        Ok(connection)
    }

    /// Follows a connection to its end.
    async fn follow(&mut self, mut live: Connection) -> Result<End, Gone> {
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
            let foreign = tokio::select! {
                // In this order: an answer that waited for the worker is not late, and live
                // batches can wait longest.
                biased;
                answer = next_answer(&mut replay) => self.replayed(answer, &mut effects).await?,
                () = until(deadline) => {
                    self.sequence.tick(Instant::now(), &mut effects);
                    None
                }
                message = live.receive() => match message {
                    Ok(frames) => self.live(&frames, &mut effects).await?,
                    Err(error) => return Ok(End::Broken(error)),
                },
            };
            if let Some(topic) = foreign {
                return Ok(End::Foreign(topic));
            }
        }
    }

    /// Takes a live message. Returns its topic if that is not one that is wanted.
    async fn live(
        &mut self,
        frames: &[Bytes],
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, Gone> {
        match Numbered::live(frames) {
            Some(message) => {
                if let Some(foreign) = self.note_topic(&message) {
                    return Ok(Some(foreign));
                }
                self.sequence.live(message.seq, message.payload, Instant::now(), effects);
            }
            None => self.tell(News::Malformed).await?,
        }
        Ok(None)
    }

    /// Takes an answer to a replay. Returns its topic if that is not one that is wanted.
    async fn replayed(
        &mut self,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, Gone> {
        let now = Instant::now();
        match answer {
            Answer::Message(frames) => match Numbered::replayed(&frames) {
                Some(message) if message.is_end() => self.sequence.replay_ended(now, effects),
                Some(message) => {
                    if let Some(foreign) = self.note_topic(&message) {
                        return Ok(Some(foreign));
                    }
                    self.sequence.replayed(message.seq, message.payload, now, effects);
                }
                None => self.tell(News::Malformed).await?,
            },
            Answer::Failed => self.sequence.replay_failed(now, effects),
        }
        Ok(None)
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
                Effect::Void { cause, same_engine } => News::Void { cause, same_engine },
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

    /// Remembers the topic. Returns it if it is not one that is wanted.
    fn note_topic(&mut self, message: &Numbered) -> Option<String> {
        // Replays of older engines have none: then the last one stands.
        let topic = message.topic.as_ref()?;
        if !topic.starts_with(self.source.topic_filter.as_bytes()) {
            return Some(String::from_utf8_lossy(topic).chars().take(80).collect());
        }
        if *topic != self.topic {
            self.topic = Bytes::copy_from_slice(topic.get(..MAX_TOPIC_BYTES).unwrap_or(topic));
            if let Some(model) = topic_model(&self.topic) {
                self.model = Some(Arc::from(model));
            }
        }
        None
    }
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
