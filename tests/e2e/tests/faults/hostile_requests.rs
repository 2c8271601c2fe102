//! Requests meant to upset the filter: each gets an answer, none costs a VM.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use e2e::client::CHAT;
use e2e::raw_client::RawClient;
use e2e::stack::PATIENCE;
use e2e::{Setup, Stack};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The filter's limit for bodies.
const LARGEST: usize = 16 << 20;

const GOOD: &[u8] =
    br#"{"model":"llama-70b","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;

fn chat_around(before: &str, content: &[u8], after: &str) -> Vec<u8> {
    [before.as_bytes(), content, after.as_bytes()].concat()
}

/// A message with this as its content, quotes included.
fn content(content: &[u8]) -> Vec<u8> {
    let before = r#"{"model":"llama-70b","max_tokens":1,"messages":[{"role":"user","content":"#;
    chat_around(before, content, "}]}")
}

fn quoted(piece: &str, times: usize) -> Vec<u8> {
    content(format!("\"{}\"", piece.repeat(times)).as_bytes())
}

fn field(field: &str) -> Vec<u8> {
    let after = r#","messages":[{"role":"user","content":"hi"}]}"#;
    chat_around(r#"{"model":"llama-70b","#, field.as_bytes(), after)
}

fn nested(open: &str, close: &str, depth: usize) -> Vec<u8> {
    content(format!("{}1{}", open.repeat(depth), close.repeat(depth)).as_bytes())
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let part = r#"{"type":"text","text":"a"}"#;
    let message = r#"{"role":"user","content":"a"}"#;
    let many = |piece: &str, times| format!("[{}]", vec![piece; times].join(",")).into_bytes();
    let keys: Vec<String> = (0..200_000).map(|n| format!("\"k{n}\":{n}")).collect();
    vec![
        ("nothing", Vec::new()),
        ("an open object", br#"{"model":"#.to_vec()),
        ("an array", b"[]".to_vec()),
        ("null", b"null".to_vec()),
        ("a string", b"\"x\"".to_vec()),
        ("a byte order mark", [b"\xef\xbb\xbf", GOOD].concat()),
        ("UTF-16", utf16(r#"{"model":"llama-70b","messages":[]}"#)),
        ("zero bytes", vec![0; 100_000]),
        ("every byte", (0..=255).cycle().take(100_000).collect()),
        ("a lone surrogate", quoted("\\ud800", 1)),
        ("swapped surrogates", quoted("\\udc00\\ud800", 1000)),
        ("a cut escape", content(br#""\u00"#)),
        ("invalid UTF-8", content(b"\"\xff\xfe\xc0\x80\xed\xa0\x80\"")),
        ("a 5 MB string", quoted("a", 5_000_000)),
        ("5 MB of escapes", quoted("\\u0041", 830_000)),
        (
            "a model of 1 MB",
            chat_around("{\"model\":\"", &vec![b'm'; 1 << 20], r#"","messages":[]}"#),
        ),
        ("10,000 arrays", nested("[", "]", 10_000)),
        ("10,000 objects", nested("{\"a\":", "}", 10_000)),
        ("16 MiB of [", vec![b'['; LARGEST]),
        ("16 MiB of {\"a\":", b"{\"a\":".repeat(LARGEST / 5)),
        ("16 MiB of quotes", vec![b'"'; LARGEST]),
        ("16 MiB of blanks", vec![b' '; LARGEST]),
        ("200,000 keys", format!("{{{}}}", keys.join(",")).into_bytes()),
        ("100,000 parts", content(&many(part, 100_000))),
        (
            "100,000 messages",
            chat_around(r#"{"model":"llama-70b","messages":"#, &many(message, 100_000), "}"),
        ),
        (
            "a prompt of 100,000 ids",
            field(&format!(r#""prompt":{}"#, String::from_utf8_lossy(&many("12", 100_000)))),
        ),
        ("a number of 400 digits", field(&format!(r#""max_tokens":{}"#, "9".repeat(400)))),
        ("1e400", field(r#""max_tokens":1e400"#)),
        ("-1e-400", field(r#""temperature":-1e-400"#)),
        ("below zero", field(r#""max_tokens":-9223372036854775809"#)),
        ("NaN", field(r#""temperature":NaN"#)),
        ("keys twice", field(r#""model":"b","\u006dodel":"c","stream":true,"stream":false"#)),
        ("the wrong types", field(r#""stream":{},"max_tokens":[],"tools":7,"cache_salt":[1]"#)),
        ("a salt of 1 MB", field(&format!(r#""cache_salt":"{}""#, "s".repeat(1 << 20)))),
        ("no messages", br#"{"model":"llama-70b","messages":null}"#.to_vec()),
        (
            "messages of anything",
            br#"{"model":"llama-70b","messages":[1,"a",null,[],{}]}"#.to_vec(),
        ),
        (
            "content of anything",
            content(br#"[1,"a",null,[],{},{"type":7},{"type":"text"},{"text":1}]"#),
        ),
        ("a tail", [GOOD, b" x"].concat()),
        ("two documents", [GOOD, GOOD].concat()),
    ]
}

/// Header lines, and request lines' targets, as the client sends them.
fn headers() -> Vec<(&'static str, Vec<u8>)> {
    let line = |name: &str, value: &[u8]| [name.as_bytes(), b": ", value, b"\r\n"].concat();
    let many = |count: usize| (0..count).flat_map(|n| line(&format!("x-h{n}"), b"v")).collect();
    vec![
        ("64 KB of credentials", line("authorization", &[b'a'; 64 << 10])),
        ("50 KB of credentials", line("authorization", &[b'a'; 50_000])),
        ("no credentials", line("authorization", b"")),
        ("odd credentials", line("authorization", b"bearer\t\xff")),
        ("a value that is no UTF-8", line("x-a", b"\xff\xfe")),
        ("a name that is no UTF-8", b"x-\xff\xfe: v\r\n".to_vec()),
        ("a name in UTF-8", "x-\u{e9}: v\r\n".as_bytes().to_vec()),
        ("no name", b": v\r\n".to_vec()),
        ("a name with a blank", b"x y: v\r\n".to_vec()),
        ("a zero byte", line("x-a", b"a\0b")),
        ("a tab", line("x-a", b"a\tb")),
        ("an empty value", line("x-a", b"")),
        ("two content types", [line("content-type", b"a/b"), line("content-type", b"")].concat()),
        ("a content type that is no UTF-8", line("content-type", b"\xff")),
        ("an encoding that is no UTF-8", line("content-encoding", b"\xff\xfe")),
        (
            "two encodings",
            [line("content-encoding", b"identity"), line("content-encoding", b"gzip")].concat(),
        ),
        ("an empty encoding", line("content-encoding", b"")),
        ("a destination that is no UTF-8", line("x-gateway-destination-endpoint", b"\xff")),
        ("a request id that is no UTF-8", line("x-request-id", b"\xff\xff")),
        ("80 headers", many(80)),
        ("2,000 headers", many(2000)),
        ("attempts", line("x-envoy-attempt-count", b"99999999999999999999")),
        ("both lengths", line("transfer-encoding", b"chunked")),
        ("a second length", line("content-length", b"7")),
    ]
}

fn lengths() -> [&'static str; 8] {
    ["-1", "99999999999999999999", "18446744073709551615", "4294967296", "abc", "1e3", "0x10", ""]
}

fn targets() -> Vec<Vec<u8>> {
    let mut targets: Vec<Vec<u8>> = [
        "/v1/chat/completions?",
        "/v1/chat/completions?a=%ff&b",
        "/v1/chat/completions/",
        "//v1//chat/completions",
        "/v1/../v1/chat/completions",
        "/%2e%2e/v1/chat/completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions#x",
        "/v1/chat/completions;x",
        "*",
        "v1/chat/completions",
        "http://h/v1/chat/completions",
        "http://",
        "/warmroute/debug?x",
        "/warmroute/debug/",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/%63hat/completions",
    ]
    .map(|target| target.as_bytes().to_vec())
    .to_vec();
    targets.push(b"/\xff\xfe".to_vec());
    targets.push([b"/".as_slice(), &[b'a'; 50_000]].concat());
    targets
}

/// Sends a request and returns the status of its answer.
async fn status(listen: SocketAddr, head: &[u8], body: &[u8]) -> Result<u16> {
    let mut client = RawClient::connect(listen).await?;
    let whole = [head, b"\r\n", body].concat();
    // An answer may come, and the connection be closed, before all of it is sent.
    let (sent, answer) = {
        let sent = client.send(&whole).await;
        (sent, client.head().await)
    };
    match answer {
        Ok(head) => {
            client.rest().await?;
            Ok(head.status)
        }
        Err(why) => Err(sent.err().unwrap_or(why)).context("no answer"),
    }
}

fn head(target: &[u8], length: &str, more: &[u8]) -> Vec<u8> {
    let mut head = [b"POST ", target, b" HTTP/1.1\r\nhost: e2e\r\n"].concat();
    head.extend(format!("content-type: application/json\r\ncontent-length: {length}\r\n").bytes());
    head.extend(more);
    head
}

/// No VM was lost or replaced, and the filter still works.
pub(crate) async fn unharmed(stack: &Stack) -> Result<()> {
    for outcome in ["reload", "reload_backoff", "reload_failure", "reload_success"] {
        assert_eq!(stack.stat(&format!("wasm.warmroute.vm_{outcome}")).await?, 0, "{outcome}");
    }
    let log = std::fs::read_to_string(stack.envoy.process.log())?;
    assert!(!log.contains("Uncaught") && !log.contains("panicked"), "{log}");
    let idle = async || (stack.filter_state().await.ok()?.in_flight == 0).then_some(());
    stack.until("nothing in flight", idle).await?;
    let length = GOOD.len().to_string();
    let good = status(stack.listen(), &head(CHAT.as_bytes(), &length, b""), GOOD).await?;
    assert_eq!(good, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_answered_and_cost_no_vm() -> Result<()> {
    let stack = Stack::start(Setup::new(2, 1)).await?;
    let listen = stack.listen();
    for (what, body) in bodies() {
        let head = head(CHAT.as_bytes(), &body.len().to_string(), b"");
        let status = status(listen, &head, &body).await.with_context(|| what.to_owned())?;
        assert!((200..500).contains(&status), "{what}: {status}");
    }
    let length = GOOD.len().to_string();
    for (what, lines) in headers() {
        let head = head(CHAT.as_bytes(), &length, &lines);
        let status = status(listen, &head, GOOD).await.with_context(|| what.to_owned())?;
        assert!((200..500).contains(&status), "{what}: {status}");
    }
    for length in lengths() {
        let head = head(CHAT.as_bytes(), length, b"");
        let status = status(listen, &head, b"").await.with_context(|| length.to_owned())?;
        assert!((400..500).contains(&status), "length {length}: {status}");
    }
    for target in targets() {
        let shown = String::from_utf8_lossy(&target).chars().take(60).collect::<String>();
        let head = head(&target, &length, b"");
        let status = status(listen, &head, GOOD).await.with_context(|| shown.clone())?;
        assert!((200..500).contains(&status), "{shown}: {status}");
    }
    unharmed(&stack).await
}

/// One HTTP/2 request whose header field has exactly these bytes; returns once the other side said anything
/// of it.
async fn http2_request(listen: SocketAddr, name: &[u8], value: &[u8]) -> Result<()> {
    let mut socket = TcpStream::connect(listen).await?;
    let mut block = Vec::new();
    let fields: [(&[u8], &[u8]); 5] = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/v1/models"),
        (b":authority", b"e2e"),
        (name, value),
    ];
    for (name, value) in fields {
        // RFC 7541, 6.2.2: a literal that is not indexed, with a new name, neither part compressed.
        block.push(0);
        for text in [name, value] {
            ensure!(text.len() < 127, "longer texts need more than one byte of length");
            block.push(u8::try_from(text.len())?);
            block.extend(text);
        }
    }
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| -> Result<Vec<u8>> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let [_, length @ ..] = length;
        Ok([&length[..], &[kind, flags, 0, 0, 0, stream], payload].concat())
    };
    let settings = frame(4, 0, 0, &[])?;
    // END_STREAM and END_HEADERS.
    let headers = frame(1, 5, 1, &block)?;
    let whole = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &headers].concat();
    socket.write_all(&whole).await?;
    loop {
        let mut head = [0; 9];
        match socket.read_exact(&mut head).await {
            Ok(_) => {}
            // Envoy closed the connection over it: that is an answer too.
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(why) if why.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(why) => return Err(why.into()),
        }
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        socket.read_exact(&mut payload).await?;
        // HEADERS, RST_STREAM or GOAWAY.
        if matches!(kind, 1 | 3 | 7) {
            return Ok(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_fields_of_any_bytes_over_http2_cost_no_vm() -> Result<()> {
    let stack = Stack::start(Setup::new(1, 1)).await?;
    // At once, since Envoy takes its time to close the connections of those that it refuses.
    let mut requests = JoinSet::new();
    for byte in 0..=255 {
        let (listen, odd) = (stack.listen(), [b'x', b'-', byte]);
        requests.spawn(async move {
            let both = async {
                http2_request(listen, &odd, b"v").await.with_context(|| format!("name {byte}"))?;
                http2_request(listen, b"x-a", &odd).await.with_context(|| format!("value {byte}"))
            };
            timeout(PATIENCE, both).await.with_context(|| format!("no reaction to byte {byte}"))?
        });
    }
    while let Some(request) = requests.join_next().await {
        request??;
    }
    http2_request(stack.listen(), b"", b"").await.context("nothing at all")?;
    unharmed(&stack).await
}
