//! The engine simulator: many replicas in one process, and its admin interface.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::{Answer, Process, ProcessError, Programs, Session, control};

/// How the simulator is started.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Replicas, each on a port of its own.
    pub replicas: usize,
    /// First port; the replicas take consecutive ones. 0: any free ports.
    pub base_port: u16,
    /// Model name.
    pub model: String,
    /// More arguments for the command line.
    pub arguments: Vec<String>,
}

impl SimulatorOptions {
    /// `replicas` of the model `llama-70b` on free ports.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas, base_port: 0, model: "llama-70b".to_owned(), arguments: Vec::new() }
    }
}

/// A running simulator.
#[derive(Debug)]
pub struct Simulator {
    /// The process.
    pub process: Process,
    /// Its admin interface.
    pub admin: SocketAddr,
    /// Its replicas.
    pub replicas: Vec<SocketAddr>,
    /// Sidecars of the replicas, in their order, if it was started with `--sidecars`.
    pub sidecars: Vec<SocketAddr>,
}

/// The line it prints when it listens.
#[derive(Deserialize)]
struct Ready {
    ready: bool,
    admin: SocketAddr,
    replicas: Vec<SocketAddr>,
    #[serde(default)]
    sidecars: Vec<SocketAddr>,
}

impl Simulator {
    /// Starts it and waits until all replicas listen.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(
        programs: &Programs,
        options: &SimulatorOptions,
        dir: &Path,
        session: Session,
    ) -> Result<Self, ProcessError> {
        let mut arguments = vec![
            "--replicas".to_owned(),
            options.replicas.to_string(),
            "--base-port".to_owned(),
            options.base_port.to_string(),
            "--admin-port".to_owned(),
            "0".to_owned(),
            "--model".to_owned(),
            options.model.clone(),
        ];
        arguments.extend(options.arguments.iter().cloned());
        let mut process =
            Process::start("engine-sim", &programs.engine_sim, &arguments, dir, session)?;
        let output = process.output();
        let ready = async || {
            let text = std::fs::read_to_string(&output).ok()?;
            let line = text.split_inclusive('\n').find(|line| line.ends_with('\n'))?;
            serde_json::from_str::<Ready>(line).ok().filter(|line| line.ready)
        };
        let ready = process.wait_ready(Duration::from_secs(30), ready).await?;
        let Ready { admin, replicas, sidecars, .. } = ready;
        Ok(Self { process, admin, replicas, sidecars })
    }

    /// Empties the caches and counters of all replicas; ends what occupies them.
    ///
    /// # Errors
    /// When the admin interface does not do it.
    pub async fn reset(&self) -> Result<(), ProcessError> {
        self.order("/reset", &json!({})).await.map(drop)
    }

    /// Holds this share of a replica's KV blocks until the next reset.
    ///
    /// # Errors
    /// When the admin interface does not do it.
    pub async fn occupy(&self, replica: usize, fraction: f64) -> Result<(), ProcessError> {
        self.order("/occupy", &json!({"replica": replica, "fraction": fraction})).await.map(drop)
    }

    /// Orders a fault, as the simulator's `POST /faults` takes it.
    ///
    /// # Errors
    /// When the admin interface does not accept it.
    pub async fn fault(&self, fault: &serde_json::Value) -> Result<(), ProcessError> {
        self.order("/faults", fault).await.map(drop)
    }

    /// What the replicas hold and have served.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn state(&self) -> Result<serde_json::Value, ProcessError> {
        Ok(control::get(self.admin, "/state").await?.json())
    }

    /// POST to the admin interface.
    ///
    /// # Errors
    /// When it does not accept it.
    pub async fn order(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<Answer, ProcessError> {
        control::post(self.admin, path, body).await
    }
}
