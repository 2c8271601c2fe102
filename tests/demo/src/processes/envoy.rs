//! Envoy with the wasm filter.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::agent::eds_dir;
use super::{Bootstrap, Ports, Process, ProcessError, Programs, Session, control, render};

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    /// The process.
    pub process: Process,
    /// For clients.
    pub listen: SocketAddr,
    /// Its admin interface.
    pub admin: SocketAddr,
}

impl Envoy {
    /// Writes the bootstrap into `dir`, starts Envoy with `workers` worker threads and waits until
    /// it is ready.
    ///
    /// `plugin_config_extra` is put into the plugin's JSON: empty, or fields with a comma before
    /// each. The agent must have written its endpoints for Envoy.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(
        programs: &Programs,
        ports: Ports,
        workers: usize,
        pool: &str,
        plugin_config_extra: &str,
        dir: &Path,
        session: Session,
    ) -> Result<Self, ProcessError> {
        let template = std::fs::read_to_string(&programs.template)
            .map_err(ProcessError::io("read", &programs.template))?;
        let bootstrap = render(
            &template,
            &Bootstrap {
                wasm: &programs.wasm,
                listen_port: ports.listen,
                admin_port: ports.admin,
                agent: local(ports.agent),
                eds_dir: &eds_dir(dir),
                pool,
                access_log: &dir.join("access.log"),
                plugin_config_extra,
            },
        )?;
        let path = dir.join("envoy.yaml");
        std::fs::write(&path, bootstrap).map_err(ProcessError::io("write", &path))?;
        Self::run(programs, &path, ports, workers, &[], dir, session).await
    }

    /// Starts Envoy with a bootstrap that is there already, and waits until it is ready.
    ///
    /// `arguments` are added to the command line; `ports` are those of the bootstrap.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn run(
        programs: &Programs,
        bootstrap: &Path,
        ports: Ports,
        workers: usize,
        arguments: &[String],
        dir: &Path,
        session: Session,
    ) -> Result<Self, ProcessError> {
        let mut all = vec![
            "--config-path".to_owned(),
            bootstrap.display().to_string(),
            "--concurrency".to_owned(),
            workers.to_string(),
            // Several Envoys may run on one machine. And with hot restart Envoy has the kernel end it
            // when the thread that started it ends, so that nothing could be left running.
            "--disable-hot-restart".to_owned(),
            "--log-level".to_owned(),
            "warning".to_owned(),
            "--component-log-level".to_owned(),
            "wasm:info".to_owned(),
        ];
        all.extend(arguments.iter().cloned());
        let mut process = Process::start("envoy", &programs.envoy, &all, dir, session)?;
        let admin = local(ports.admin);
        let ready =
            async || control::get(admin, "/ready").await.ok().filter(|answer| answer.status == 200);
        process.wait_ready(Duration::from_secs(30), ready).await?;
        Ok(Self { process, listen: local(ports.listen), admin })
    }

    /// Value of one of Envoy's statistics, 0 if there is none of that name.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64, ProcessError> {
        let answer = control::get(self.admin, "/stats").await?;
        let text = String::from_utf8_lossy(&answer.body);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
    }

    /// All statistics as Prometheus reads them.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn prometheus(&self) -> Result<String, ProcessError> {
        let answer = control::get(self.admin, "/stats/prometheus").await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Hosts that a cluster has.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn hosts(&self, cluster: &str) -> Result<u64, ProcessError> {
        self.stat(&format!("cluster.{cluster}.membership_total")).await
    }
}

/// 127.0.0.1 with this port.
pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
