//! What reaches the worker: orders of the supervisor and reports of the sources, in one bounded
//! queue, so that a report never overtakes the order that it belongs to.

use super::models::EventModel;
use super::sequence::{Cause, Note};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use warmroute_shared_state::endpoint::EndpointId;

/// Messages that wait for the worker at most; then sources wait, and publishers queue.
pub const QUEUE_MESSAGES: usize = 1024;
/// Bytes of batches that wait for the worker at most.
pub const QUEUE_BYTES: usize = 16 << 20;

/// Anything for the worker.
#[derive(Debug)]
pub enum Message {
    /// From the supervisor.
    Order(Order),
    /// From a source.
    Report(Report),
}

/// What the supervisor wants.
#[derive(Debug)]
pub enum Order {
    /// These models' events can be read. Endpoints are followed anew after it.
    Models(Vec<Arc<EventModel>>),
    /// Follow an endpoint; whatever was held of it is void.
    Follow(Following),
    /// An endpoint is not followed any more.
    Forget(EndpointId),
}

/// How the worker is to take an endpoint's events.
#[derive(Debug, Clone)]
pub struct Following {
    /// Whose.
    pub endpoint: EndpointId,
    /// Number of this following.
    pub incarnation: u64,
    /// The endpoint's name, for metrics.
    pub name: String,
    /// The model, if topics don't name it.
    pub model: Option<String>,
    /// Worth of a block in a slower tier, in percent.
    pub lower_tier_percent: u8,
}

/// Which source a report is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId {
    /// Whose events.
    pub endpoint: EndpointId,
    /// Which of its data-parallel ranks.
    pub rank: u16,
    /// Number of this following of the endpoint: what an earlier one still says is not heard.
    pub incarnation: u64,
}

/// What a source has to say.
#[derive(Debug)]
pub struct Report {
    /// From whom.
    pub source: SourceId,
    /// What.
    pub news: News,
}

/// See [`Report`].
#[derive(Debug)]
pub enum News {
    /// The source begins: whatever is held of its rank is void.
    Begin,
    /// The next batch.
    Batch {
        /// As it came.
        payload: Bytes,
        /// The model that the topic names, if it does.
        model: Option<Arc<str>>,
        /// Its place in the queue.
        space: Option<OwnedSemaphorePermit>,
    },
    /// All that came before is void.
    Void {
        /// Why.
        cause: Cause,
        /// Whether what comes next is surely of the same process: then names of blocks keep
        /// their meaning.
        same_engine: bool,
    },
    /// Something to count.
    Count(Note),
    /// A message of another shape than topic, number and payload came, and was dropped.
    Malformed,
    /// Connected, and nothing is known to be missing.
    Whole {
        /// The model that the topic names, if that is known yet.
        model: Option<Arc<str>>,
    },
    /// The publisher's topics are not those that are wanted: nothing of it counts.
    ForeignTopic,
    /// The publisher could not be reached for a while: nothing is known of it any more.
    Unreachable,
}

/// Whoever the messages were for is gone.
#[derive(Debug)]
pub struct Gone;

/// The way to the worker, bounded in messages and in bytes.
#[derive(Debug, Clone)]
pub struct Outlet {
    messages: mpsc::Sender<Message>,
    space: Arc<Semaphore>,
}

impl Outlet {
    /// Done when nobody receives any more.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }

    /// A way that ends at the receiver.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Message>) {
        let (messages, receiver) = mpsc::channel(QUEUE_MESSAGES);
        (Self { messages, space: Arc::new(Semaphore::new(QUEUE_BYTES >> 10)) }, receiver)
    }

    /// Waits for a place in the queue.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn order(&self, order: Order) -> Result<(), Gone> {
        self.messages.send(Message::Order(order)).await.map_err(|_| Gone)
    }

    /// Waits for a place in the queue.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn report(&self, source: SourceId, news: News) -> Result<(), Gone> {
        self.messages.send(Message::Report(Report { source, news })).await.map_err(|_| Gone)
    }

    /// Waits until a batch of so many bytes may be queued.
    pub async fn space(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kilobytes = (bytes >> 10).saturating_add(1).min(QUEUE_BYTES >> 10);
        let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
        Arc::clone(&self.space).acquire_many_owned(kilobytes).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_wait_for_space_and_one_larger_than_all_space_gets_it_whole() {
        let (outlet, _receiver) = Outlet::new();
        let first = outlet.space(QUEUE_BYTES * 2).await.unwrap();
        let mut second = std::pin::pin!(outlet.space(1));
        let at_once =
            std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_ready()));
        assert!(!at_once.await);
        drop(first);
        assert!(second.await.is_some());
    }
}
