//! `GET /v1/stream`: long polls. The contract stands in `warmroute_shared_state::stream`.

use super::Server;
use crate::metrics::Metrics;
use crate::publish::{Answer, LOAD_BATCH, Poll};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout_at};
use warmroute_shared_state::stream::{Page, PageKind, Position};

/// However long a reader would wait, it gets an answer by then.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The query of a poll.
#[derive(Debug, Deserialize)]
pub struct Ask {
    epoch: Option<u64>,
    seq: Option<u64>,
    #[serde(default)]
    page: u32,
    #[serde(default)]
    wait_ms: u64,
}

/// Counts a reader for as long as it is served, also if it hangs up.
struct Reader<'a>(&'a Metrics);

impl<'a> Reader<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.stream_readers.inc();
        Self(metrics)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.stream_readers.dec();
    }
}

/// Answers one poll, at once or when there is something new.
pub async fn poll(State(server): State<Server>, Query(ask): Query<Ask>) -> Response {
    let metrics = &server.shared.metrics;
    let _reader = Reader::new(metrics);
    match wait(&server, &ask).await {
        Some(page) => {
            metrics.stream_answered(match page.kind {
                PageKind::Snapshot { .. } => "snapshot",
                PageKind::Delta { .. } if page.ops.is_empty() => "empty",
                PageKind::Delta { .. } => "delta",
            });
            ([(header::CONTENT_TYPE, "application/octet-stream")], page.encode()).into_response()
        }
        None => {
            metrics.stream_answered("not_ready");
            let text = "no full table yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], text).into_response()
        }
    }
}

/// The page to answer with; `None` if there is no table to speak of.
async fn wait(server: &Server, ask: &Ask) -> Option<Page> {
    let asked = tokio::time::Instant::now();
    let deadline = asked + Duration::from_millis(ask.wait_ms).min(MAX_WAIT);
    let position = match (ask.epoch, ask.seq) {
        (Some(epoch), Some(seq)) => Some(Position { epoch, seq }),
        _ => None,
    };
    let poll = Poll { position, page: ask.page };
    let publisher = &server.shared.publisher;
    // Subscribed before looking, so that nothing falls between a look and a wait.
    let (mut news, mut changes) = (publisher.news(), publisher.changes());
    let mut stopping = server.stopping.clone();
    loop {
        news.borrow_and_update();
        changes.borrow_and_update();
        let now = tokio::time::Instant::now();
        let over = now >= deadline || *stopping.borrow();
        match publisher.answer(poll, Instant::now()) {
            Answer::Page(page) => return Some(page),
            Answer::Loads(page) if over || now >= asked + LOAD_BATCH => return Some(page),
            Answer::Loads(_) => {
                let until = deadline.min(asked + LOAD_BATCH);
                tokio::select! {
                    () = sleep_until(until) => {}
                    _ = changes.changed() => {}
                    _ = stopping.changed() => {}
                }
            }
            Answer::Nothing(page) if over => return Some(page),
            Answer::NotReady if over => return None,
            Answer::Nothing(_) | Answer::NotReady => {
                tokio::select! {
                    _ = timeout_at(deadline, news.changed()) => {}
                    _ = stopping.changed() => {}
                }
            }
        }
    }
}
