use super::{Outbox, Token};
#[cfg(not(target_arch = "wasm32"))]
use proptest::prelude::*;
use std::collections::BTreeSet;
use warmroute_shared_state::usage_record::batch::{Batch, MAX_BATCH_RECORDS};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

fn record(outbox: &mut Outbox) -> UsageRecord {
    UsageRecord {
        id: outbox.next_id(),
        at_ms: 1_790_000_000_000,
        request_id: "r".into(),
        tenant: "a".into(),
        fairness_id: "a".into(),
        model: "m".into(),
        target_model: "m".into(),
        pool: "p".into(),
        endpoint: "10.0.0.1:8000".into(),
        attempts: 1,
        priority: 0,
        status: 200,
        input_tokens: 10,
        cached_tokens: 0,
        output_tokens: 5,
        reasoning_tokens: 0,
        exact: true,
        reserved_tokens: 20,
        charged_tokens: 15,
        cause: EndCause::Natural,
        dropped: String::new(),
        flow: None,
        queue_ms: 0,
        ttft_ms: None,
        duration_ms: 9,
        streamed: false,
        request_bytes: 40,
        response_bytes: 50,
    }
}

fn push(outbox: &mut Outbox, count: usize, now_ms: u64) {
    for _ in 0..count {
        let record = record(outbox);
        outbox.push(&record, now_ms);
    }
}

fn numbers(batch: &[u8]) -> Vec<u64> {
    Batch::decode(batch).unwrap().records.iter().map(|record| record.id.1).collect()
}

fn sent(batch: Option<(Token, Vec<u8>)>) -> (Token, Vec<u64>) {
    let (token, bytes) = batch.expect("a batch is due");
    assert_eq!(Batch::decode(&bytes).unwrap().head.seq, token.seq());
    (token, numbers(&bytes))
}

crate::tests! {
    fn a_record_waits_for_others_but_not_long() {
        let mut outbox = Outbox::new(1);
        assert!(outbox.next_batch(1000).is_none(), "nothing to send");
        push(&mut outbox, 1, 1000);
        push(&mut outbox, 1, 1150);
        assert!(outbox.next_batch(1199).is_none());
        assert_eq!(sent(outbox.next_batch(1200)).1, [1, 2]);
    }

    fn many_do_not_wait() {
        let mut outbox = Outbox::new(1);
        push(&mut outbox, 512, 1000);
        assert_eq!(sent(outbox.next_batch(1000)).1.len(), 512);
    }

    fn one_batch_is_under_way_and_goes_when_it_is_acknowledged() {
        let mut outbox = Outbox::new(1);
        push(&mut outbox, 2, 0);
        let (token, _) = sent(outbox.next_batch(200));
        push(&mut outbox, 1, 200);
        assert!(outbox.next_batch(400).is_none(), "one at a time");
        assert_eq!(outbox.counts().waiting, 3);
        outbox.acknowledged(token);
        outbox.acknowledged(token);
        assert_eq!((outbox.counts().waiting, outbox.counts().delivered), (1, 2));
        let (token, records) = sent(outbox.next_batch(400));
        assert_eq!(records, [3]);
        outbox.acknowledged(token);
        assert!(outbox.is_empty());
        assert_eq!(outbox.counts().bytes, 0);
    }

    fn what_failed_goes_again_with_what_came_since() {
        let mut outbox = Outbox::new(0);
        push(&mut outbox, 1, 0);
        let mut now = 200;
        for pause in [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let (token, records) = sent(outbox.next_batch(now));
            assert_eq!(records[0], 1);
            outbox.failed(token, now);
            push(&mut outbox, 1, now);
            assert!(outbox.next_batch(now + pause - 1).is_none(), "pause of {pause} ms");
            now += pause;
        }
        let (token, records) = sent(outbox.next_batch(now));
        assert_eq!(records, (1..=9).collect::<Vec<_>>());
        outbox.acknowledged(token);
        assert_eq!(outbox.counts().failed, 8);
        // Back to the first pause.
        push(&mut outbox, 1, now);
        let (token, _) = sent(outbox.next_batch(now + 200));
        outbox.failed(token, now + 200);
        assert!(outbox.next_batch(now + 400).is_some());
    }

    fn vms_do_not_try_again_all_at_once() {
        let retries: BTreeSet<u64> = (0..256).step_by(32).map(|incarnation| {
            let mut outbox = Outbox::new(incarnation);
            push(&mut outbox, 1, 0);
            let (token, _) = sent(outbox.next_batch(200));
            outbox.failed(token, 200);
            (0..).find(|now| outbox.next_batch(*now).is_some()).unwrap()
        }).collect();
        assert_eq!(retries.len(), 8);
        assert!(retries.first() >= Some(&400) && retries.last() <= Some(&450), "{retries:?}");
    }

    fn a_batch_that_nobody_answers_goes_again_and_its_late_answer_is_ignored() {
        let mut outbox = Outbox::new(0);
        push(&mut outbox, 1, 0);
        let (lost, _) = sent(outbox.next_batch(200));
        assert!(outbox.next_batch(10_199).is_none());
        assert!(outbox.next_batch(10_200).is_none(), "given up, now a pause");
        let (token, records) = sent(outbox.next_batch(10_400));
        assert_eq!(records, [1]);
        outbox.acknowledged(lost);
        outbox.failed(lost, 10_400);
        assert_eq!(outbox.counts().waiting, 1);
        outbox.acknowledged(token);
        assert!(outbox.is_empty());
    }

    fn without_room_the_oldest_go_and_are_counted() {
        let mut outbox = Outbox::new(1);
        push(&mut outbox, 16_384, 0);
        let (token, records) = sent(outbox.next_batch(0));
        assert_eq!(records.len(), MAX_BATCH_RECORDS);
        push(&mut outbox, 10, 0);
        assert_eq!((outbox.counts().waiting, outbox.counts().dropped), (16_384, 10));
        // Ten of the batch are gone already: no younger ones go in their place.
        outbox.acknowledged(token);
        assert_eq!(sent(outbox.next_batch(0)).1[0], 4097);
        assert_eq!(outbox.counts().delivered, 4086);
    }

    fn bytes_are_bounded_too() {
        let mut outbox = Outbox::new(1);
        for _ in 0..8192 {
            let long = UsageRecord {
                request_id: "x".repeat(256),
                dropped: "x".repeat(256),
                pool: "x".repeat(256),
                model: "x".repeat(256),
                endpoint: "x".repeat(256),
                ..record(&mut outbox)
            };
            outbox.push(&long, 0);
        }
        let counts = outbox.counts();
        assert!(counts.bytes <= 8 << 20 && counts.dropped > 0, "{counts:?}");
        assert_eq!(counts.waiting as u64 + counts.dropped, 8192);
    }

    fn a_clock_that_is_set_back_does_not_hold_records() {
        let mut outbox = Outbox::new(1);
        push(&mut outbox, 1, 5000);
        assert!(outbox.next_batch(10).is_some());
    }

    #[cfg(not(target_arch = "wasm32"))]
    /// Whatever is lost or answered late, each record that was not dropped arrives, in its order.
    fn every_record_arrives() {
        proptest!(|(steps in proptest::collection::vec((0..4u8, 1..700u64, 0..3usize), 1..60))| {
            let mut outbox = Outbox::new(3);
            let (mut now, mut arrived, mut pushed) = (0, BTreeSet::new(), 0);
            let mut old = Vec::new();
            for (what, time, count) in steps {
                now += time;
                push(&mut outbox, count, now);
                pushed += count as u64;
                let Some((token, bytes)) = outbox.next_batch(now) else { continue };
                match what {
                    0 => arrived.extend(numbers(&bytes)), // stored, and the answer is lost
                    1 => {
                        arrived.extend(numbers(&bytes));
                        outbox.acknowledged(token);
                    }
                    2 => outbox.failed(token, now),
                    _ => old.iter().for_each(|token| outbox.acknowledged(*token)),
                }
                old.push(token);
            }
            for _ in 0..100 {
                now += 11_000;
                if let Some((token, bytes)) = outbox.next_batch(now) {
                    arrived.extend(numbers(&bytes));
                    outbox.acknowledged(token);
                }
            }
            prop_assert!(outbox.is_empty());
            prop_assert_eq!(arrived, (1..=pushed).collect::<BTreeSet<_>>());
        });
    }
}
