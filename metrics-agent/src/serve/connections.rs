//! Accepts connections and serves HTTP/1.1 on them, a bounded number at once and none for ever.
//!
//! An own loop, since `axum::serve` sets no bounds: whoever connects and then says nothing would
//! hold a descriptor that a scrape needs.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::warn;

/// Pause after a failed accept, which is mostly a lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Bounds of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Time for the whole head of a request, counted from the connection's start or the last
    /// answer: it also ends idle connections.
    pub head_timeout: Duration,
}

impl Default for Limits {
    /// A connection or two for each of many Envoys; a head timeout above the usual scrape
    /// interval of Prometheus, which keeps its connection.
    fn default() -> Self {
        Self { connections: 1024, head_timeout: Duration::from_secs(30) }
    }
}

/// Serves `router` until `stop` is done; then lets requests under way end.
pub async fn run(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    let service = TowerToHyperService::new(router);
    let free = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &free) => accepted,
        };
        let Some((stream, permit)) = accepted else { continue };
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // An error is the peer's: it hung up, was too slow, or does not speak HTTP.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers are small and should not wait for more.
            let _ = stream.set_nodelay(true);
            Some((stream, permit))
        }
        Err(error) => {
            warn!(%error, "cannot accept a connection, trying again");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}
