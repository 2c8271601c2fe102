//! The task of one endpoint: finds its publishers, and keeps a source running for each.

use super::discover::{self, DiscoverError, Publisher};
use super::inbox::{News, Outlet, SourceId};
use super::message::topic_model;
use super::source::Source;
use crate::config::kv_events::Plan;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use warmroute_shared_state::endpoint::EndpointId;

/// Time between two questions to an engine that answers.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Time after a lost connection or an unanswered question.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// One endpoint to follow.
#[derive(Debug)]
pub struct EndpointTask {
    /// Whose events.
    pub id: EndpointId,
    /// Number of this following.
    pub incarnation: u64,
    /// The endpoint's name, for logs.
    pub name: String,
    /// Where its engine listens.
    pub address: SocketAddr,
    /// How its events are followed.
    pub plan: Plan,
    /// The way to the worker.
    pub outlet: Outlet,
}

/// A source that runs, until this is dropped.
struct Running {
    publisher: Publisher,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EndpointTask {
    /// Runs until aborted.
    pub async fn run(self) {
        let lost = Arc::new(Notify::new());
        let mut sources = BTreeMap::new();
        let mut said = None;
        let mut pause = ASK_AGAIN;
        loop {
            let answer =
                if self.plan.discover { discover::ask(self.address).await } else { Ok(Vec::new()) };
            self.log(&answer, &mut said);
            if let Some(found) = self.choose(answer.clone(), sources.is_empty()) {
                self.keep(found, &mut sources, &lost).await;
            }
            if !self.plan.discover {
                return std::future::pending().await;
            }
            // An engine that is still loading answers soon; one that cannot say never will.
            pause = if answer.is_ok() { ASK_EVERY } else { (pause * 2).min(ASK_EVERY) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = lost.notified() => {
                    pause = ASK_AGAIN;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// The publishers to follow from now on; `None` if those of now stay.
    fn choose(
        &self,
        answer: Result<Vec<Publisher>, DiscoverError>,
        none_yet: bool,
    ) -> Option<Vec<Publisher>> {
        let configured = || {
            let ports = self.plan.ports.map(|ports| discover::at_ports(ports, self.address.ip()));
            ports.unwrap_or_default()
        };
        match answer {
            Ok(found) if found.is_empty() => Some(configured()),
            Ok(found) => Some(found),
            // Silence says nothing new of publishers that were found before.
            Err(_) if none_yet => Some(configured()),
            Err(_) => None,
        }
    }

    async fn keep(
        &self,
        found: Vec<Publisher>,
        sources: &mut BTreeMap<u16, Running>,
        lost: &Arc<Notify>,
    ) {
        let gone = |rank: &u16| !found.iter().any(|publisher| publisher.rank == *rank);
        let ranks: Vec<u16> = sources.keys().copied().filter(gone).collect();
        for rank in ranks {
            info!(endpoint = self.name, rank, "KV events: the publisher is gone");
            self.stop(rank, sources).await;
            let _ = self.outlet.report(self.source_id(rank), News::Unreachable).await;
        }
        for publisher in found {
            let rank = publisher.rank;
            if sources.get(&rank).is_some_and(|running| running.publisher == publisher) {
                continue;
            }
            self.stop(rank, sources).await;
            let (live, replay) = (publisher.address.live, publisher.address.replay);
            let replay = replay.map(tracing::field::display);
            info!(endpoint = self.name, rank, %live, replay, "KV events: following");
            let source = Source {
                id: self.source_id(rank),
                address: publisher.address,
                topic_filter: self.plan.topic_filter.clone(),
                model: publisher
                    .topic
                    .as_deref()
                    .and_then(|topic| topic_model(topic.as_bytes()))
                    .map(Arc::from),
                outlet: self.outlet.clone(),
                lost: Arc::clone(lost),
            };
            let task = tokio::spawn(source.run());
            sources.insert(rank, Running { publisher, task });
        }
    }

    /// Ends a source: nothing of it comes after this.
    async fn stop(&self, rank: u16, sources: &mut BTreeMap<u16, Running>) {
        if let Some(mut running) = sources.remove(&rank) {
            running.task.abort();
            let _ = (&mut running.task).await;
        }
    }

    fn source_id(&self, rank: u16) -> SourceId {
        SourceId { endpoint: self.id, rank, incarnation: self.incarnation }
    }

    /// Says once what an engine answered that gives nothing to follow.
    fn log(
        &self,
        answer: &Result<Vec<Publisher>, DiscoverError>,
        said: &mut Option<Option<DiscoverError>>,
    ) {
        let now = match answer {
            Ok(found) if found.is_empty() && self.plan.discover => Some(None),
            Ok(_) => None,
            Err(error) => Some(Some(*error)),
        };
        if *said == now {
            return;
        }
        *said = now;
        match now {
            Some(None) => warn!(endpoint = self.name, "KV events: the engine publishes none"),
            Some(Some(error)) if self.plan.ports.is_none() => {
                warn!(endpoint = self.name, %error, "KV events: no publisher found");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kv_events::Ports;

    fn task(plan: Plan) -> EndpointTask {
        let (outlet, _) = Outlet::new();
        let address = "10.0.0.1:8000".parse().unwrap();
        let (id, name) = (EndpointId(1), "n/e".to_owned());
        EndpointTask { id, incarnation: 1, name, address, plan, outlet }
    }

    #[test]
    fn the_engines_answer_goes_before_ports_and_silence_changes_nothing() {
        let ports = Ports { live: 5557, replay: None, ranks: 1 };
        let plan = Plan {
            discover: true,
            ports: Some(ports),
            topic_filter: String::new(),
            model: None,
            lower_tier_percent: 0,
        };
        let task = task(plan);
        let configured = discover::at_ports(ports, task.address.ip());
        let found = discover::at_ports(Ports { live: 7000, ..ports }, task.address.ip());
        assert_eq!(task.choose(Ok(found.clone()), false), Some(found));
        assert_eq!(task.choose(Ok(Vec::new()), false), Some(configured.clone()));
        for error in [DiscoverError::NoAnswer, DiscoverError::NotKnown, DiscoverError::Unreadable] {
            assert_eq!(task.choose(Err(error), true), Some(configured.clone()));
            assert_eq!(task.choose(Err(error), false), None);
        }
    }
}
