//! The load generator against a scripted server: what counts as what, and in which order.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use warmroute_demo::load::{Failure, Target, run, send};
use warmroute_demo::workload::{Prompt, Workload};

const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-sim-endpoint: 127.0.0.1:9101\r\n\
                   connection: close\r\n\r\n";
const ROLE: &str =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":1,\
                     \"prompt_tokens_details\":{\"cached_tokens\":48}}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// Serves every connection with `serve`, which gets the request's body.
async fn server<F, S>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream, String) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let serve = serve.clone();
            tokio::spawn(async move {
                let body = read_request(&mut socket).await;
                serve(socket, body).await;
            });
        }
    });
    address
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return body.to_owned();
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return String::new();
        }
    }
}

async fn outcome_of(answer: &'static str, hold: bool) -> warmroute_demo::load::Outcome {
    let address = server(move |mut socket, _| async move {
        socket.write_all(answer.as_bytes()).await.unwrap();
        if hold {
            std::future::pending::<()>().await;
        }
    })
    .await;
    let target = Target::new(
        address,
        "/v1/chat/completions",
        Duration::from_millis(if hold { 200 } else { 10_000 }),
    );
    send(&target, Bytes::from_static(b"{}")).await
}

#[tokio::test]
async fn a_complete_stream_is_read_to_its_usage() {
    let answer: &'static str = [SSE, ROLE, HI, USAGE, DONE].concat().leak();
    let outcome = outcome_of(answer, false).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.endpoint.as_deref(), Some("127.0.0.1:9101"));
    assert_eq!((outcome.facts.prompt_tokens, outcome.facts.cached_tokens), (70, 48));
    assert!(outcome.first_token.is_some_and(|first| first <= outcome.whole));
}

#[tokio::test]
async fn every_way_to_fail_is_told_apart() {
    let cases: [(&str, Vec<&str>, bool, Failure); 7] = [
        ("no [DONE]", vec![SSE, ROLE, HI], false, Failure::Truncated),
        ("no content", vec![SSE, ROLE, DONE], false, Failure::Truncated),
        (
            "error object",
            vec![SSE, HI, "data: {\"error\":{\"code\":500}}\n\n", DONE],
            false,
            Failure::EngineError,
        ),
        (
            "status",
            vec!["HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n"],
            false,
            Failure::Status(503),
        ),
        ("no HTTP", vec!["what?\r\n\r\n"], false, Failure::Broken),
        ("silence", vec![], true, Failure::Timeout),
        ("silence after content", vec![SSE, HI], true, Failure::Timeout),
    ];
    for (what, pieces, hold, failure) in cases {
        let outcome = outcome_of(pieces.concat().leak(), hold).await;
        assert_eq!(outcome.failure, Some(failure), "{what}");
    }
    let nobody = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let outcome = send(&Target::new(nobody, "/", Duration::from_secs(10)), Bytes::new()).await;
    assert_eq!(outcome.failure, Some(Failure::Connect));
}

/// The server holds each answer until as many requests as allowed are there, so a generator that
/// sent fewer at once would never end, and one that sent more is caught by the count.
#[tokio::test]
async fn as_many_as_asked_for_are_in_flight_and_turns_do_not_overlap() {
    const IN_FLIGHT: usize = 3;
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let gate = Arc::new(Semaphore::new(0));
    let arrived = Arc::new(Mutex::new((0_usize, 0_usize)));
    let address = {
        let (log, gate, arrived) = (Arc::clone(&log), Arc::clone(&gate), Arc::clone(&arrived));
        server(move |mut socket, body| {
            let (log, gate, arrived) = (Arc::clone(&log), Arc::clone(&gate), Arc::clone(&arrived));
            async move {
                log.lock().unwrap().push(body);
                {
                    let mut arrived = arrived.lock().unwrap();
                    arrived.0 += 1;
                    arrived.1 = arrived.1.max(arrived.0);
                    if arrived.0 == IN_FLIGHT {
                        gate.add_permits(IN_FLIGHT);
                    }
                }
                gate.acquire().await.unwrap().forget();
                arrived.lock().unwrap().0 -= 1;
                socket.write_all([SSE, HI, DONE].concat().as_bytes()).await.unwrap();
            }
        })
        .await
    };
    let turn = |turn: usize| -> Vec<Prompt> {
        (0..2 * IN_FLIGHT)
            .map(|conversation| Prompt {
                conversation,
                body: Bytes::from(format!("{turn}-{conversation}")),
                tokens: 1,
            })
            .collect()
    };
    let workload = Workload { turns: vec![turn(0), turn(1)], ideal_cached_tokens: 0 };
    let ended = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&ended);
    let target = Target::new(address, "/v1/chat/completions", Duration::from_secs(20));
    let samples = run(&workload, &target, IN_FLIGHT, move |_| *counter.lock().unwrap() += 1).await;

    assert_eq!((samples.len(), *ended.lock().unwrap()), (12, 12));
    assert!(samples.iter().all(|sample| sample.outcome.failure.is_none()));
    assert_eq!(arrived.lock().unwrap().1, IN_FLIGHT);
    let log = log.lock().unwrap();
    let turns: Vec<char> = log.iter().filter_map(|body| body.chars().next()).collect();
    assert_eq!(String::from_iter(turns), "000000111111");
}
