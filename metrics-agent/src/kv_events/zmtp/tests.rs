use super::*;
use proptest::prelude::*;
use tokio::net::TcpListener;

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, flags, body);
    bytes
}

/// All that is in `bytes`, come in pieces of these sizes.
fn all(bytes: &[u8], sizes: &[usize]) -> Result<Vec<Incoming>, ZmtpError> {
    let mut received = Received::default();
    let (mut found, mut rest) = (Vec::new(), bytes);
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(usize::MAX));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
        received.bytes.extend_from_slice(piece);
        rest = after;
        while let Some(incoming) = received.next()? {
            found.push(incoming);
        }
    }
    Ok(found)
}

proptest! {
    #[test]
    fn messages_cut_anywhere_come_out_whole(
        messages in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 1..5), 0..5,
        ),
        sizes in proptest::collection::vec(0usize..300, 0..40),
    ) {
        let mut bytes = Vec::new();
        for frames in &messages {
            for (index, body) in frames.iter().enumerate() {
                let more = if index + 1 < frames.len() { MORE } else { 0 };
                bytes.extend(frame(more, body));
            }
            bytes.extend(frame(COMMAND, b"\x04PING\0\0"));
        }
        let expected: Vec<_> = messages.iter().flat_map(|frames| [
            Incoming::Message(frames.iter().map(|body| Bytes::copy_from_slice(body)).collect()),
            Incoming::Command(Bytes::from_static(b"\x04PING\0\0")),
        ]).collect();
        prop_assert_eq!(all(&bytes, &sizes).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = all(&bytes, &[]);
        let mut received = Received::default();
        received.bytes.extend_from_slice(&bytes);
        let _ = received.greeting();
        let _ = check_ready(&bytes, Role::Sub);
        let _ = check_ready(&[b"\x05READY", &bytes[..]].concat(), Role::Sub);
    }
}

#[test]
fn more_than_is_read_is_refused_before_it_comes() {
    let announced = |flags: u8, len: u64| {
        let mut bytes = vec![flags | LONG];
        bytes.extend(len.to_be_bytes());
        bytes
    };
    let limit = u64::try_from(MAX_MESSAGE_BYTES).unwrap();
    assert_eq!(all(&announced(0, limit), &[]).unwrap(), []);
    let first = frame(MORE, &[7; 300]);
    let cases = [
        announced(0, limit + 1),
        announced(0, u64::MAX),
        announced(COMMAND, 1 << 20),
        [first, announced(0, limit - 299)].concat(),
        frame(MORE, b"x").repeat(MAX_FRAMES + 1),
    ];
    for bytes in cases {
        let error = all(&bytes, &[]).unwrap_err();
        assert!(matches!(error, ZmtpError::TooLarge), "{error}");
    }
    for flags in [8, 0x80, MORE | COMMAND] {
        assert!(matches!(all(&[flags, 0], &[]), Err(ZmtpError::Protocol(_))));
    }
}

/// A peer that sends `bytes` and keeps what it gets until the other side closes.
async fn peer(bytes: Vec<u8>) -> (SocketAddr, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        got
    });
    (address, task)
}

fn ready_of(kind: &[u8]) -> Vec<u8> {
    let len = u8::try_from(kind.len()).unwrap();
    frame(COMMAND, &[b"\x05READY\x0bSocket-Type\0\0\0", &[len][..], kind].concat())
}

#[tokio::test]
async fn it_shakes_hands_subscribes_and_answers_heartbeats() {
    let ping = frame(COMMAND, b"\x04PING\0\x10hello");
    let (address, peer) = peer(
        [greeting(), ready_of(b"XPUB"), ping, frame(MORE, b"a"), frame(0, &[b'b'; 300])].concat(),
    )
    .await;
    let mut connection = Connection::open(address, Role::Sub).await.unwrap();
    connection.subscribe("kv@").await.unwrap();
    let frames = connection.receive().await.unwrap();
    assert_eq!(frames, [Bytes::from_static(b"a"), Bytes::from(vec![b'b'; 300])]);
    drop(connection);
    let got = peer.await.unwrap();
    let expected = [
        greeting(),
        frame(COMMAND, b"\x05READY\x0bSocket-Type\0\0\0\x03SUB\x08Identity\0\0\0\0"),
        frame(0, b"\x01kv@"),
        frame(COMMAND, b"\x04PONGhello"),
    ];
    assert_eq!(got, expected.concat());
    assert_eq!(greeting().len(), GREETING_BYTES);
}

#[tokio::test]
async fn who_is_no_publisher_is_refused() {
    let mut secured = greeting();
    secured[12..17].copy_from_slice(b"CURVE");
    let mut old = greeting();
    old[10] = 2;
    let cases = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "no greeting"),
        (old, "no greeting"),
        (secured, "authentication"),
        ([greeting(), ready_of(b"ROUTER")].concat(), "another socket type"),
        ([greeting(), frame(COMMAND, b"\x05READY")].concat(), "no socket type"),
        ([greeting(), frame(COMMAND, b"\x05ERROR\x02no")].concat(), "refused"),
        ([greeting(), frame(0, b"early")].concat(), "before the handshake"),
    ];
    for (bytes, message) in cases {
        let (address, _peer) = peer(bytes).await;
        let error = Connection::open(address, Role::Sub).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
