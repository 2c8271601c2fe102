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
    let mut untried = false;
    tokio::time::sleep(pace.first(RandomState::new().hash_one(id))).await;
    loop {
        let began = Instant::now();
        let outcome = scrape(&mut client, &plan, settings.timeout).await;
        let now = Instant::now();
        let duration = now.saturating_duration_since(began);
        let pause = match outcome {
            Outcome::Untried | Outcome::Refused | Outcome::NoAnswer => pace.after_failure(),
            Outcome::Unreadable | Outcome::Read(_) => pace.after_answer(duration),
        };
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
