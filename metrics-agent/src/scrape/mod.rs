//! Scrapes of the engines: one task an endpoint, on a clock of its own.
//!
//! [`plan`] says where an endpoint's page is and, with [`mapping`] and [`selector`], what is read of it; [`client`]
//! fetches, [`engine`] reads (with [`exposition`]), [`health`] judges, [`pace`] says when to come back. This file
//! only ties them together.

pub mod client;
pub mod engine;
pub mod exposition;
pub mod health;
pub mod mapping;
pub mod pace;
pub mod plan;
pub mod selector;

use client::{Client, Fetch};
use health::{Health, Limits, Outcome};
use pace::Pace;
use plan::ScrapePlan;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tracing::warn;
use warmroute_shared_state::endpoint::EndpointId;

/// Asked of an engine whose metrics are on another port: any answer is a sign of life, and this one costs nothing.
/// (`/health` does: SGLang generates a token for it, behind whatever it computes.)
const LIFE_PATH: &str = "/";

/// How endpoints are scraped.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Shortest interval, unless an endpoint's plan says another.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// When endpoints are out and signals stale.
    pub limits: Limits,
}

/// What a scraper says after every scrape.
#[derive(Debug, Clone)]
pub struct Report {
    /// Whose.
    pub id: EndpointId,
    /// How this scrape ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
    /// All that is known of the endpoint now.
    pub health: Health,
}

/// Scrapes one endpoint until nobody receives the reports any more or the task is aborted. A new plan is followed
/// at once.
pub async fn run(
    id: EndpointId,
    address: SocketAddr,
    mut plans: watch::Receiver<ScrapePlan>,
    settings: Settings,
    reports: mpsc::Sender<Report>,
) {
    let mut plan = plans.borrow_and_update().clone();
    let mut client = Client::new(plan.target(address));
    let mut health = Health::new(settings.limits);
    let mut pace = Pace::new(plan.interval.unwrap_or(settings.interval));
    let (mut untried, mut page_away) = (false, false);
    tokio::time::sleep(pace.first(RandomState::new().hash_one(id))).await;
    loop {
        let began = Instant::now();
        let page = scrape(&mut client, &plan, settings.timeout).await;
        let duration = began.elapsed();
        let pause = match page {
            Outcome::Untried | Outcome::Refused | Outcome::NoAnswer => pace.after_failure(),
            Outcome::Unreadable | Outcome::Read(_) => pace.after_answer(duration),
        };
        let page_answers = matches!(page, Outcome::Unreadable | Outcome::Read(_));
        let away = matches!(page, Outcome::Refused | Outcome::NoAnswer);
        let target = plan.target(address);
        // A page on a port of its own that is away says nothing of the engine: its own port does.
        let outcome = if away && target != address {
            ask_engine(address, settings.timeout).await
        } else {
            page
        };
        let now = Instant::now();
        let was_page_away = page_away;
        page_away = is_page_away(page_away, page_answers, &outcome);
        if page_away && !was_page_away {
            warn!(%address, %target, "the engine answers and its metrics page does not: its load is not known");
        }
        if outcome == Outcome::Untried && !untried {
            warn!(%address, "not scraped: no file descriptor or memory left, raise `ulimit -n`");
        }
        untried = outcome == Outcome::Untried;
        health.apply(outcome.clone(), began, now, pace.interval());
        let report = Report { id, outcome, duration, health: health.clone() };
        if reports.send(report).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = plans.changed() => {
                if changed.is_err() {
                    return;
                }
                let before = std::mem::replace(&mut plan, plans.borrow_and_update().clone());
                if plan.target(address) != before.target(address) {
                    client = Client::new(plan.target(address));
                    page_away = false;
                }
                pace.set_base(plan.interval.unwrap_or(settings.interval));
            }
        }
    }
}

async fn scrape(client: &mut Client, plan: &ScrapePlan, timeout: Duration) -> Outcome {
    match client.get(&plan.path, timeout).await {
        Fetch::Untried => Outcome::Untried,
        Fetch::Refused => Outcome::Refused,
        Fetch::NoAnswer => Outcome::NoAnswer,
        Fetch::Unreadable => Outcome::Unreadable,
        Fetch::Body(body) => match engine::read(&body, &plan.mapping) {
            Some(reading) => Outcome::Read(reading),
            None => Outcome::Unreadable,
        },
    }
}

/// Whether an engine is known to answer while its page does not: until the page does.
fn is_page_away(before: bool, page_answers: bool, outcome: &Outcome) -> bool {
    !page_answers && (before || *outcome == Outcome::Unreadable)
}

/// Whether the engine at `address` answers, where its metrics are elsewhere and nobody answers there.
async fn ask_engine(address: SocketAddr, timeout: Duration) -> Outcome {
    match Client::new(address).get(LIFE_PATH, timeout).await {
        Fetch::Untried => Outcome::Untried,
        Fetch::Refused => Outcome::Refused,
        Fetch::NoAnswer => Outcome::NoAnswer,
        // Of any status: it lives.
        Fetch::Unreadable | Fetch::Body(_) => Outcome::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::plan::{ExtractorSpec, ScrapePlans, SourceSpec};
    use std::collections::BTreeMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};
    use warmroute_shared_state::endpoint::Availability;

    /// A port that nobody listens on and nobody else gets while it is held.
    fn closed_port() -> (TcpSocket, SocketAddr) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    /// Has no page: it tells its life to whoever asks for the one path that costs it nothing, and nobody else.
    async fn engine() -> (tokio::task::JoinHandle<()>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap_or(0);
                if !request[..length].starts_with(b"GET / ") {
                    continue;
                }
                let answer =
                    b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        };
        (tokio::spawn(serve), address)
    }

    #[test]
    fn a_page_is_away_until_it_answers() {
        let reading = Outcome::Read(engine::Reading::default());
        let steps = [
            (false, Outcome::Refused, false),
            (false, Outcome::Unreadable, true),
            (false, Outcome::NoAnswer, true),
            (false, Outcome::Untried, true),
            (false, Outcome::Unreadable, true),
            (true, Outcome::Unreadable, false),
            (false, Outcome::Unreadable, true),
            (true, reading, false),
        ];
        let mut away = false;
        for (index, (page_answers, outcome, expected)) in steps.iter().enumerate() {
            away = is_page_away(away, *page_answers, outcome);
            assert_eq!(away, *expected, "step {index}");
        }
    }

    #[tokio::test]
    async fn a_page_of_its_own_that_is_away_does_not_take_the_engine_out() {
        let (_page, page) = closed_port();
        let (served, address) = engine().await;
        let source = SourceSpec { port: Some(page.port()), ..SourceSpec::default() };
        let plans = ScrapePlans::new(&source, &ExtractorSpec::default()).unwrap();
        let (_plan, plans) = watch::channel(plans.of(&BTreeMap::new()));
        let limits = Limits { failed_scrapes: 3, stale_after: Duration::from_secs(2) };
        let (interval, timeout) = (Duration::from_millis(50), Duration::from_secs(5));
        let settings = Settings { interval, timeout, limits };
        let (to, mut reports) = mpsc::channel(1);
        let id = EndpointId::new("n", "e", &address.to_string());
        let scraper = tokio::spawn(run(id, address, plans, settings, to));
        for _ in 0..2 {
            let report = reports.recv().await.unwrap();
            assert_eq!(report.outcome, Outcome::Unreadable);
            assert_eq!(report.health.availability(), Some(Availability::Ready));
        }
        served.abort();
        let _ = served.await;
        // One report may have been made before.
        let mut outcome = Outcome::Unreadable;
        while outcome == Outcome::Unreadable {
            let report = reports.recv().await.unwrap();
            outcome = report.outcome;
            if outcome == Outcome::Refused {
                assert_eq!(report.health.availability(), Some(Availability::Out));
            }
        }
        assert_eq!(outcome, Outcome::Refused);
        scraper.abort();
    }
}
