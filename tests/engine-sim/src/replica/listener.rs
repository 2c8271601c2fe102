//! The port: accepting connections, and ceasing to.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::connection::{Connection, ResetFlag};
use super::{Replica, service};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// What becomes of open connections when the port closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Idle ones are closed, the others after their answer.
    Graceful,
    /// All are closed at once.
    Abort,
}

/// One period of listening.
pub struct Listening {
    stop: watch::Sender<Option<Stop>>,
    task: Option<JoinHandle<()>>,
}

/// Binds a port that may have connections left over from an earlier period.
pub async fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

impl Listening {
    pub(super) fn start(replica: &Arc<Replica>, socket: TcpListener) -> Self {
        let (stop, stopped) = watch::channel(None);
        let task = tokio::spawn(accept(Arc::downgrade(replica), socket, stopped));
        Self { stop, task: Some(task) }
    }

    pub(super) fn accepts(&self) -> bool {
        self.task.is_some()
    }

    /// Returns once the port is closed.
    pub(super) async fn stop(&mut self, stop: Stop) {
        self.stop.send_replace(Some(stop));
        if let Some(task) = self.task.take() {
            // It only ends by returning; a panic in it was printed already.
            let _ = task.await;
        }
    }
}

async fn accept(
    replica: Weak<Replica>,
    socket: TcpListener,
    mut stopped: watch::Receiver<Option<Stop>>,
) {
    let for_connections = stopped.clone();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(converse(replica.clone(), stream, for_connections.clone()));
                }
                // Out of descriptors: let some close before trying again.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            // The value only ever changes to a stop.
            _ = stopped.changed() => return,
        }
    }
}

async fn converse(
    replica: Weak<Replica>,
    stream: TcpStream,
    mut stopped: watch::Receiver<Option<Stop>>,
) {
    // Events must leave as they appear. Failing to set it costs delay only.
    let _ = stream.set_nodelay(true);
    let reset = ResetFlag::default();
    let io = Connection::new(stream, reset.clone());
    let service = service_fn(move |request| {
        let (replica, reset) = (replica.upgrade(), reset.clone());
        async move {
            match replica {
                Some(replica) => service::serve(&replica, &reset, request).await,
                None => Err(super::stream::Cut),
            }
        }
    });
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(io, service);
    tokio::pin!(connection);
    loop {
        tokio::select! {
            // An error here is a client that went away or a fault on command: nothing to report.
            _ = connection.as_mut() => return,
            stop = stopped.changed() => {
                if stop.is_err() || *stopped.borrow_and_update() == Some(Stop::Abort) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
