//! The numbers by which a request's answer is reserved, as engines read them: by pydantic (2.14.4 was asked for these).

use super::*;

/// Values and what counts of them.
fn counts() -> Vec<(String, Option<u64>)> {
    let read = [
        ("64", 64),
        ("64.0", 64),
        ("6.4e1", 64),
        ("true", 1),
        ("false", 0),
        ("-0.0", 0),
        (r#""64""#, 64),
        (r#"" 64 ""#, 64),
        (r#""\u00a064\u3000""#, 64),
        (r#""6\u0034""#, 64),
        (r#""64.0""#, 64),
        (r#""+64""#, 64),
        (r#""+0064""#, 64),
        (r#""6_4""#, 64),
        (r#""0_64""#, 64),
        (r#""0__64""#, 64),
        (r#""1_000.00""#, 1000),
        (r#""0.0""#, 0),
        // Python's integers have no end.
        ("99999999999999999999", u64::MAX),
        (r#""99999999999999999999""#, u64::MAX),
        // The nearest floating point number is whole.
        ("63.99999999999999999", 64),
    ];
    let refused = [
        "null",
        "[64]",
        r#"{"a":64}"#,
        "-64",
        "-0.5",
        r#""-64""#,
        r#""1e2""#,
        r#""0x40""#,
        r#""6.5""#,
        r#""64.""#,
        r#"".0""#,
        r#"".""#,
        r#""""#,
        r#"" ""#,
        r#""+""#,
        r#""++64""#,
        r#""+-64""#,
        r#""+ 64""#,
        r#""_64""#,
        r#""64_""#,
        r#""64_.0""#,
        r#""64.0_0""#,
        r#""64 .0""#,
        r#""\u200b64""#,
        r#""\u0666\u0664""#,
        r#""true""#,
        r#""inf""#,
    ];
    let long = format!("\"{}64\"", "0".repeat(4290));
    let read = read.into_iter().map(|(value, count)| (value.to_owned(), Some(count)));
    let refused = refused.into_iter().map(|value| (value.to_owned(), None));
    read.chain(refused).chain([(long, Some(64))]).collect()
}

crate::tests! {
    fn counts_are_what_the_engine_reads() {
        type Get = fn(&RequestFacts) -> Option<u64>;
        let (limit, choices): (Get, Get) = (|facts| facts.max_output_tokens, |facts| facts.choices);
        for (path, before, after, get) in [
            (PathClass::Chat, r#"{"model":"m","messages":[{}],"max_tokens":"#, "}", limit),
            (PathClass::Chat, r#"{"model":"m","messages":[{}],"max_completion_tokens":"#, "}", limit),
            (PathClass::Chat, r#"{"model":"m","messages":[{}],"n":"#, "}", choices),
            (PathClass::Completions, r#"{"model":"m","prompt":"p","max_tokens":"#, "}", limit),
            (PathClass::Completions, r#"{"model":"m","prompt":"p","n":"#, "}", choices),
            (PathClass::Messages, r#"{"model":"m","messages":[{}],"max_tokens":"#, "}", limit),
            (PathClass::Responses, r#"{"model":"m","input":"x","max_output_tokens":"#, "}", limit),
            (PathClass::Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"max_tokens":"#, "}}", limit),
            (PathClass::Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"n":"#, "}}", choices),
            (PathClass::SglangGenerate, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":"#, "}}", limit),
            (PathClass::SglangGenerate, r#"{"input_ids":[1],"sampling_params":{"n":"#, "}}", choices),
        ] {
            for (value, count) in counts() {
                let body = format!("{before}{value}{after}");
                let facts = scan_slices(path, [body.as_bytes()]).unwrap();
                assert_eq!(get(&facts), count, "{body}");
            }
        }
    }

    fn what_stands_too_close_to_a_whole_number_is_never_counted_low() {
        for (value, at_least) in [
            ("64.00000000000000001", 64),
            ("64.0000000000000071", 64),
            ("64.000000000000000000000000000000001", 64),
            ("1e30", u64::MAX),
            ("1e-400000000000", 1),
            ("0e400000000000", 0),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{{}}],"max_tokens":{value}}}"#);
            let counted = chat(&body).unwrap().max_output_tokens;
            assert!(counted.is_some_and(|counted| counted >= at_least), "{value}: {counted:?}");
        }
    }

    fn the_last_sampling_params_count() {
        for path in [PathClass::Generate, PathClass::SglangGenerate] {
            for last in ["{}", "null", "[{}]", r#"{"n":null}"#] {
                let body = format!(
                    r#"{{"model":"m","n":2,"token_ids":[1],"input_ids":[1],"sampling_params":{{"n":9}},"sampling_params":{last}}}"#
                );
                let facts = scan_slices(path, [body.as_bytes()]).unwrap();
                assert_eq!(facts.choices, None, "{body}");
            }
        }
    }

    fn token_ids_are_numbers_only() {
        for id in [r#""5""#, "true", "1.5"] {
            let body = format!(r#"{{"model":"m","token_ids":[1,{id}]}}"#);
            let error = scan_slices(PathClass::Generate, [body.as_bytes()]).unwrap_err();
            assert_eq!(error, RequestError::BadInput { field: "token_ids" }, "{body}");
        }
    }
}
