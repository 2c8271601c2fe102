//! An agent inside the test, on a port and in a folder of its own.

use crate::engine::Engine;
use crate::http;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use warmroute_agent::app::{self, AppError, Options};
use warmroute_agent::scrape::health::Limits;
use warmroute_agent::serve::connections;
use warmroute_agent::{fleet, ledger, scrape};

/// No test waits longer than this for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A folder that is removed with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("agent-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in one step.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(self.path(".new"), text).unwrap();
        std::fs::rename(self.path(".new"), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A list of endpoints as YAML.
pub(crate) fn list(endpoints: &[(&str, SocketAddr)]) -> String {
    let mut text = "endpoints:\n".to_owned();
    if endpoints.is_empty() {
        text = "endpoints: []\n".to_owned();
    }
    for (name, address) in endpoints {
        let (ip, port) = (address.ip(), address.port());
        writeln!(text, "- {{name: {name}, address: '{ip}', port: {port}}}").unwrap();
    }
    text
}

pub(crate) fn list_of(engines: &[(&str, &Engine)]) -> String {
    let all: Vec<_> = engines.iter().map(|(name, engine)| (*name, engine.address)).collect();
    list(&all)
}

/// Options with short times, so that what is waited for comes soon.
pub(crate) fn options(folder: &Folder) -> Options {
    let limits = Limits { failed_scrapes: 3, stale_after: Duration::from_millis(300) };
    let scrape = scrape::Settings {
        interval: Duration::from_millis(50),
        timeout: Duration::from_millis(200),
        limits,
    };
    Options {
        config: folder.path("pool.yaml"),
        look_every: Duration::from_millis(10),
        connections: connections::Limits::default(),
        ledger: ledger::Settings::off(),
        fleet: fleet::Settings {
            pool: "pool".into(),
            eds_dir: Some(folder.path("eds")),
            settle: Duration::from_millis(20),
            linger: Duration::from_millis(20),
            scrape,
        },
    }
}

pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), AppError>>,
}

impl Agent {
    pub(crate) async fn start(options: Options) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(app::run(options, listener, async move {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task }
    }

    /// An agent over a list, in a folder.
    pub(crate) async fn over(folder: &Folder, list: &str) -> Self {
        folder.write("pool.yaml", list);
        Self::start(options(folder)).await
    }

    pub(crate) async fn stop(mut self) -> Result<(), AppError> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        tokio::time::timeout(LIMIT, self.task).await.expect("stops in time").unwrap()
    }

    /// Waits until the text at `path` is as wanted.
    pub(crate) async fn until(
        &self,
        path: &str,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let mut last = String::new();
        let found = tokio::time::timeout(LIMIT, async {
            loop {
                last = http::text(self.address, path).await;
                if wanted(&last) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        if found.await.is_err() {
            panic!("{what}: {path} stayed\n{last}");
        }
        last
    }
}
