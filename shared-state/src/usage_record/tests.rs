use super::batch::{
    Batch, BatchError, BatchHead, BatchWriter, MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MAX_TEXT_BYTES,
    acknowledged, acknowledgement,
};
use super::{EndCause, FlowOutcome, UsageRecord};
use crate::wire::{WireError, Writer, seal};
#[cfg(not(target_arch = "wasm32"))]
use proptest::prelude::*;

const HEAD: BatchHead = BatchHead { incarnation: 7 << 40, seq: 3 };

fn record() -> UsageRecord {
    UsageRecord {
        id: (7 << 40, 1),
        at_ms: 1_790_000_000_000,
        request_id: "6f9c1d2e-58b1-4d52-9f0e-0a1b2c3d4e5f".into(),
        tenant: "tenant-a".into(),
        fairness_id: "tenant-a".into(),
        model: "llama-70b".into(),
        target_model: "llama-70b".into(),
        pool: "llama-70b-bf16".into(),
        endpoint: "10.0.0.17:8000".into(),
        attempts: 1,
        priority: 100,
        status: 200,
        input_tokens: 3100,
        cached_tokens: 2048,
        output_tokens: 210,
        reasoning_tokens: 0,
        exact: true,
        reserved_tokens: 4024,
        charged_tokens: 3310,
        cause: EndCause::Natural,
        dropped: String::new(),
        flow: Some(FlowOutcome::Dispatched),
        queue_ms: 12,
        ttft_ms: Some(340),
        duration_ms: 4200,
        streamed: true,
        request_bytes: 12_400,
        response_bytes: 52_000,
    }
}

fn batch(records: &[UsageRecord]) -> Vec<u8> {
    let mut writer = BatchWriter::new(HEAD);
    for record in records {
        assert!(writer.push(&record.encode()));
    }
    writer.seal()
}

#[cfg(not(target_arch = "wasm32"))]
fn any_record() -> impl Strategy<Value = UsageRecord> {
    let texts = proptest::collection::vec("\\PC{0,40}", 8);
    let numbers = proptest::collection::vec(
        any::<u64>().prop_flat_map(|n| (0..64u32).prop_map(move |s| n >> s)),
        13,
    );
    let cause = proptest::sample::select(&EndCause::ALL[..]);
    let flow = proptest::option::of(proptest::sample::select(&FlowOutcome::ALL[..]));
    let small = (any::<(u64, u32, i32, u16)>(), any::<(bool, bool, bool, bool, bool)>());
    (texts, numbers, cause, flow, small).prop_map(
        |(t, n, cause, flow, ((vm, attempts, priority, status), bits))| UsageRecord {
            id: (vm, n[0]),
            at_ms: n[1],
            request_id: t[0].clone(),
            tenant: t[1].clone(),
            fairness_id: if bits.0 { t[1].clone() } else { t[2].clone() },
            model: t[3].clone(),
            target_model: if bits.1 { t[3].clone() } else { t[4].clone() },
            pool: t[5].clone(),
            endpoint: t[6].clone(),
            attempts,
            priority,
            status,
            input_tokens: n[2],
            cached_tokens: n[3],
            output_tokens: n[4],
            reasoning_tokens: n[5],
            exact: bits.2,
            reserved_tokens: n[6],
            charged_tokens: n[7],
            cause,
            dropped: t[7].clone(),
            flow,
            queue_ms: n[8],
            ttft_ms: bits.3.then_some(n[9]),
            duration_ms: n[10],
            streamed: bits.4,
            request_bytes: n[11],
            response_bytes: n[12],
        },
    )
}

crate::tests! {
    #[cfg(not(target_arch = "wasm32"))]
    fn every_record_comes_back_as_sent() {
        proptest!(|(records in proptest::collection::vec(any_record(), 0..5))| {
            let read = Batch::decode(&batch(&records)).unwrap();
            prop_assert_eq!(read, Batch { head: HEAD, records });
        });
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn any_bytes_are_read_or_refused() {
        proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..400), magic: bool)| {
            let mut w = Writer::new();
            if magic {
                w.bytes(b"WRU1");
                w.u64(1);
                w.u64(1);
                w.u32(3);
            }
            w.bytes(&bytes);
            let _ = Batch::decode(&bytes);
            // Behind a good checksum too.
            let _ = Batch::decode(&seal(w));
        });
    }

    fn a_batch_that_is_cut_or_changed_is_refused() {
        let good = batch(&[record()]);
        for at in 0..good.len() {
            assert!(Batch::decode(&good[..at]).is_err(), "cut at {at}");
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(Batch::decode(&bad), Err(WireError::Checksum.into()), "byte {at}");
        }
    }

    fn bounds_hold_on_both_sides() {
        let mut writer = BatchWriter::new(HEAD);
        let small = record().encode();
        while writer.push(&small) {}
        assert_eq!(writer.len(), MAX_BATCH_RECORDS);
        assert_eq!(Batch::decode(&writer.seal()).unwrap().records.len(), MAX_BATCH_RECORDS);

        let mut writer = BatchWriter::new(HEAD);
        let large = UsageRecord { request_id: "x".repeat(5000), ..record() }.encode();
        while writer.push(&large) {}
        let sealed = writer.seal();
        assert!(sealed.len() <= MAX_BATCH_BYTES && sealed.len() + large.len() > MAX_BATCH_BYTES);

        let bytes = MAX_BATCH_BYTES + 1;
        assert_eq!(Batch::decode(&vec![0; bytes]), Err(BatchError::TooLarge { bytes }));
        let mut w = Writer::new();
        w.bytes(b"WRU1");
        w.u64(1);
        w.u64(1);
        w.u32(4097);
        assert_eq!(Batch::decode(&seal(w)), Err(BatchError::TooMany { records: 4097 }));
    }

    fn a_long_text_is_cut_between_characters() {
        let long = UsageRecord { model: "é".repeat(200), target_model: "é".repeat(200), ..record() };
        let long = UsageRecord { request_id: format!("x{}", "é".repeat(200)), ..long };
        let read = Batch::decode(&batch(&[long])).unwrap();
        assert_eq!(read.records[0].model, "é".repeat(MAX_TEXT_BYTES / 2));
        assert_eq!(read.records[0].target_model, read.records[0].model);
        assert_eq!(read.records[0].request_id.len(), MAX_TEXT_BYTES - 1);
    }

    fn another_version_is_told_apart() {
        let mut w = Writer::new();
        w.bytes(b"WRU2");
        let value = u32::from_le_bytes(*b"WRU2");
        let error = Batch::decode(&seal(w)).unwrap_err();
        assert_eq!(error, WireError::Unknown { at: 0, value }.into());
        assert!(error.to_string().contains("of the same release"));
    }

    fn a_record_takes_a_fourth_of_its_json() {
        let (wire, json) = (record().encode().len(), serde_json::to_vec(&record()).unwrap().len());
        assert!(wire * 4 <= json, "{wire} bytes, {json} as JSON");
        let all = wire * MAX_BATCH_RECORDS;
        assert!(all < MAX_BATCH_BYTES, "a full batch of usual records: {all}");
    }

    fn an_answer_names_the_batch() {
        for seq in [0, 7, u64::MAX] {
            assert_eq!(acknowledged(acknowledgement(seq).as_bytes()), Some(seq));
        }
        for bad in [&b""[..], b"-1", b"7 8", b"\xff", b"18446744073709551616"] {
            assert_eq!(acknowledged(bad), None);
        }
    }
}
