//! A client's connection, which a fault may have to reset instead of closing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Turns the end of one connection into a TCP reset.
#[derive(Debug, Clone, Default)]
pub struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    /// From now on, dropping the connection resets it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The socket as hyper uses it.
pub struct Connection {
    io: TokioIo<TcpStream>,
    reset: ResetFlag,
}

impl Connection {
    /// Wraps an accepted socket.
    pub fn new(stream: TcpStream, reset: ResetFlag) -> Self {
        Self { io: TokioIo::new(stream), reset }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.is_set() {
            // Without lingering, closing sends RST. If the option fails the client sees a plain
            // close, which the test that asked for a reset will notice.
            let _ = self.io.inner().set_zero_linger();
        }
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.is_set() {
            // A FIN first would look like an orderly end.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
