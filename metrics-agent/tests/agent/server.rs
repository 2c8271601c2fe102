//! The HTTP server against peers that misbehave.

use crate::http;
use crate::run::{Agent, Folder, LIMIT, options};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmroute_agent::serve::connections::Limits;

#[tokio::test]
async fn connections_that_ask_nothing_are_cut_and_do_not_keep_others_out() {
    let folder = Folder::new();
    folder.write("pool.yaml", "endpoints: []");
    let mut options = options(&folder);
    options.connections = Limits { connections: 2, head_timeout: Duration::from_millis(200) };
    let agent = Agent::start(options).await;
    let mut silent = TcpStream::connect(agent.address).await.unwrap();
    let mut half = TcpStream::connect(agent.address).await.unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    let all = async {
        assert_eq!(http::get(agent.address, "/healthz").await.0, 200);
        for stream in [&mut silent, &mut half] {
            // How it is cut does not matter.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("both are cut");
}

#[tokio::test]
async fn a_kept_connection_answers_again() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"ok\n") {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}
