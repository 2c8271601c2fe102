//! What is charged, by how a request ended.

use crate::quota::{Charged, Estimate, settlement};
use crate::response::{End, ResponseReader, ResponseReport};

const ESTIMATE: Estimate = Estimate { input: 150, cached: 128 };
const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const ROLE: &str =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

fn usage(output: u64, more: &str) -> String {
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":153,\"completion_tokens\":{output}{more}}}}}\n\n"
    )
}

fn with_usage(output: u64) -> String {
    usage(output, "").replace("[]", "[{\"delta\":{\"content\":\"a\"}}]")
}

fn read(status: u16, kind: &[u8], body: &str, end: End) -> ResponseReport {
    let mut reader = ResponseReader::for_headers(status, Some(kind), None);
    reader.feed(body.as_bytes());
    reader.finish(end)
}

fn stream(body: &str, end: End) -> Charged {
    settlement(Some(&read(200, b"text/event-stream", body, end)), &ESTIMATE)
}

fn charged(input: u64, cached: u64, output: u64, exact: bool, exact_cached: bool) -> Charged {
    Charged { input, cached, output, reasoning: 0, exact, exact_cached }
}

crate::tests! {
    fn a_whole_answer_is_charged_as_the_engine_says() {
        let details = r#","prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":3}"#;
        let body = [ROLE, TOKEN, TOKEN, END, &usage(9, details), "data: [DONE]\n\n"].concat();
        let expected = Charged { reasoning: 3, ..charged(153, 64, 9, true, true) };
        // Whoever hangs up after the end has had all.
        for end in [End::Clean, End::ClientGone] {
            assert_eq!(stream(&body, end), expected);
        }
        assert_eq!(expected.tokens(), 162);
        // An engine that tells no cached tokens has none.
        let body = [TOKEN, END, &usage(1, ""), "data: [DONE]\n\n"].concat();
        assert_eq!(stream(&body, End::Clean), charged(153, 0, 1, true, true));
        let document = r#"{"choices":[{"text":"a","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#;
        let report = read(200, b"application/json", document, End::Clean);
        assert_eq!(settlement(Some(&report), &ESTIMATE), charged(5, 0, 7, true, true));
        let embedding = read(200, b"application/json", r#"{"data":[],"usage":{"prompt_tokens":5}}"#, End::Clean);
        let expected = charged(5, 5, 0, true, false);
        assert_eq!(settlement(Some(&embedding), &ESTIMATE), expected);
    }

    fn a_client_that_leaves_pays_for_the_prompt_and_what_came() {
        for tokens in [0, 1, 50] {
            let body = [ROLE, &TOKEN.repeat(tokens)].concat();
            assert_eq!(stream(&body, End::ClientGone), charged(150, 128, tokens as u64, false, false));
        }
        assert_eq!(settlement(None, &ESTIMATE), charged(150, 128, 0, false, false));
        // What is cached is part of the prompt.
        assert_eq!(settlement(None, &Estimate { input: 10, cached: 20 }).cached, 10);
    }

    fn with_usage_in_each_chunk_it_pays_what_the_engine_says() {
        let body = [ROLE, &with_usage(1), &with_usage(2), &with_usage(5)].concat();
        assert_eq!(stream(&body, End::ClientGone), charged(153, 128, 5, true, false));
        // A token after the last usage.
        assert_eq!(stream(&[&body, TOKEN].concat(), End::ClientGone), charged(153, 128, 6, false, false));
    }

    fn anthropic_tells_the_prompt_at_the_start() {
        let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"cache_read_input_tokens\":5,\"output_tokens\":0}}}\n\n";
        let delta = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n";
        let body = [start, delta, delta].concat();
        assert_eq!(stream(&body, End::ClientGone), charged(25, 5, 2, false, true));
    }

    fn what_the_engine_did_not_do_costs_nothing() {
        for status in [400, 429, 503] {
            let report = read(status, b"application/json", r#"{"error":{"code":1}}"#, End::Clean);
            assert_eq!(settlement(Some(&report), &ESTIMATE).tokens(), 0);
        }
        assert_eq!(stream("data: {\"error\":{\"code\":500}}\n\n", End::Clean).tokens(), 0);
        assert_eq!(stream(ROLE, End::Broken).tokens(), 0);
    }

    fn what_it_did_before_it_failed_is_charged() {
        let body = [ROLE, TOKEN, TOKEN].concat();
        assert_eq!(stream(&body, End::Broken), charged(150, 128, 2, false, false));
        assert_eq!(stream(&[&body, "data: {\"error\":{\"code\":500}}\n\n"].concat(), End::Clean).output, 2);
    }

    fn without_any_usage_the_chunks_count() {
        let body = [ROLE, TOKEN, TOKEN, TOKEN, END, "data: [DONE]\n\n"].concat();
        assert_eq!(stream(&body, End::Clean), charged(150, 128, 3, false, false));
    }
}
