//! Messages come back as written, and nothing else is read.

use super::*;
use crate::quota::{Ask, BucketId, Kind, Level, Refusal, Why};
use proptest::prelude::*;
use warmroute_shared_state::endpoint::EndpointId;

fn ask() -> Ask {
    Ask { bucket: BucketId::new("a", "*", Kind::Tokens), limit: 9, amount: 2 }
}

fn level() -> Level {
    Level { bucket: BucketId::from_bits(5), limit: 9, balance: -3, reset_ms: 7 }
}

fn request() -> Request {
    Request {
        pool: PoolKey(7),
        priority: -10,
        flow: "tenant ✓".into(),
        tokens: 5,
        bytes: 6,
        since_ms: 7,
        deadline_ms: u64::MAX,
        slo_ms: 9,
        budgets: vec![ask()],
    }
}

fn reports() -> Vec<Report> {
    let held = HeldTicket {
        number: 1,
        request: request(),
        endpoints: vec![EndpointId(4)],
        dispatched_ms: 5,
    };
    let parked = ParkedTicket { number: 2, request: request(), reserved: true };
    vec![
        Report::Acquire { number: 1, request: request() },
        Report::Admitted { number: 1, request: request() },
        Report::Placed { number: 1, endpoints: vec![EndpointId(1), EndpointId(2)] },
        Report::Release { number: 1, usage: Usage { prompt: 3, completion: 4 }, charged: Some(8) },
        Report::Release { number: 1, usage: Usage::default(), charged: None },
        Report::Cancel { number: 1 },
        Report::Return { pools: vec![(PoolKey(1), 2, 3)], budgets: vec![ask(); 5] },
        Report::Heartbeat { received: 4 },
        Report::Announce {
            nonce: 1,
            last: true,
            held: vec![held],
            parked: vec![parked],
            levels: vec![(level(), 6)],
        },
    ]
}

fn orders() -> Vec<Order> {
    let refuse = |refused| Order::Refuse { number: 1, refused };
    let short = |why| Refused::Budget(Refusal { ask: ask(), why, levels: vec![level(); 4] });
    let mut orders = vec![
        Order::Grant { number: 1, levels: vec![level()] },
        Order::Waits { number: 1, levels: vec![level()] },
        refuse(short(Why::Short { retry_after_ms: 5 })),
        refuse(short(Why::TableFull)),
        refuse(short(Why::TooLarge)),
        Order::Evict { number: 1 },
        Order::Lease { pool: PoolKey(1), slots: 2, tokens: 3, until_ms: 5 },
        Order::Recall { pools: vec![PoolKey(1)], budgets: vec![BucketId::from_bits(3)] },
        Order::LeaseBudgets { lent: vec![ask()], levels: vec![level()], until_ms: 3 },
        Order::AnnounceRequest { nonce: 1 },
        Order::Levels { levels: vec![level()] },
    ];
    orders.extend(
        DropReason::ALL
            .into_iter()
            .filter(|r| *r != DropReason::Budget)
            .map(|reason| refuse(Refused::Queue { reason, retry_after_ms: 9 })),
    );
    orders
}

crate::tests! {
    fn messages_come_back_as_written_and_cut_ones_do_not() {
        for report in reports() {
            let message = FromWorker { epoch: 1, incarnation: 2, sequence: 3, report };
            let bytes = message.encode();
            assert_eq!(FromWorker::decode(&bytes), Ok(message));
            assert!((0..bytes.len()).all(|len| FromWorker::decode(&bytes[..len]).is_err()));
        }
        for order in orders() {
            let message = ToWorker { epoch: 1, incarnation: 2, sequence: 3, order };
            let bytes = message.encode();
            assert_eq!(ToWorker::decode(&bytes), Ok(message));
            assert!((0..bytes.len()).all(|len| ToWorker::decode(&bytes[..len]).is_err()));
        }
    }

    fn a_reason_has_its_status_and_header() {
        for (reason, status, header) in [
            (DropReason::Saturated, 429, Some("rejected-saturated")),
            (DropReason::NoEndpoints, 503, Some("rejected-no-endpoints")),
            (DropReason::TtlExpired, 429, Some("rejected-ttl-expired")),
            (DropReason::TtlNoEndpoints, 503, Some("rejected-no-endpoints")),
            (DropReason::Cancelled, 503, Some("rejected-context-cancelled")),
            (DropReason::ShuttingDown, 503, Some("rejected-shutting-down")),
            (DropReason::Evicted, 429, Some("evicted")),
            (DropReason::Budget, 429, None),
        ] {
            assert_eq!((reason.status(), reason.header()), (status, header));
            assert_eq!(DropReason::of_code(reason.code()), Some(reason));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200),
        tag in 0u8..10,
    ) {
        let framed: Vec<u8> = [0; 24].into_iter().chain([tag]).chain(bytes).collect();
        if let Ok(message) = FromWorker::decode(&framed) {
            prop_assert_eq!(FromWorker::decode(&message.encode()), Ok(message));
        }
        if let Ok(message) = ToWorker::decode(&framed) {
            prop_assert_eq!(ToWorker::decode(&message.encode()), Ok(message));
        }
    }
}
