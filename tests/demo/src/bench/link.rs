//! One kept-alive connection that asks again and again.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Why a request of a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection.
    #[error("connect to {0}: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// The exchange broke.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// An answer other than 200.
    #[error("status {0}")]
    Status(u16),
}

pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    path: &'static str,
}

impl Link {
    pub(super) async fn open(address: SocketAddr, path: &'static str) -> Result<Self, LinkError> {
        let connect = |error| LinkError::Connect(address, error);
        let socket = TcpStream::connect(address).await.map_err(connect)?;
        socket.set_nodelay(true).map_err(connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        // Its errors come out of `post`.
        drop(tokio::spawn(connection));
        Ok(Self { sender, host: address.to_string(), path })
    }

    /// Posts `body` and reads the whole answer.
    pub(super) async fn post(&mut self, body: Bytes) -> Result<(), LinkError> {
        self.sender.ready().await?;
        let mut request = hyper::Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = hyper::Uri::from_static(self.path);
        let headers = request.headers_mut();
        headers.insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
        headers.extend(self.host.parse().ok().map(|host| (hyper::header::HOST, host)));
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        response.into_body().collect().await?;
        if status == 200 { Ok(()) } else { Err(LinkError::Status(status)) }
    }
}
