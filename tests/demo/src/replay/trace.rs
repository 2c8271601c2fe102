//! Reads a Mooncake trace: one JSON object a line.

use serde::Deserialize;

/// Tokens that one id of a trace stands for; of a prompt's last id, as many as are left.
pub(super) const BLOCK: usize = 512;

/// Prompts above this are no prompts of the trace, but of a broken file.
const LONGEST_PROMPT: usize = 1 << 20;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Row {
    /// Arrival, in milliseconds from the start of the trace; its clock ticks every three seconds.
    #[serde(rename = "timestamp")]
    pub at_ms: u64,
    /// Tokens of the prompt.
    #[serde(rename = "input_length")]
    pub prompt_tokens: usize,
    /// Tokens of the answer.
    #[serde(rename = "output_length")]
    pub reply_tokens: usize,
    /// An id for each [`BLOCK`] tokens of the prompt: equal ids, equal tokens.
    #[serde(rename = "hash_ids")]
    pub blocks: Vec<u64>,
}

/// Why a trace could not be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TraceError {
    /// A line is not a request.
    #[error("line {line} of the trace: {reason}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// There are not enough requests.
    #[error("the trace has {found} requests, not {wanted}")]
    Short {
        /// Requests that there are.
        found: usize,
        /// Requests asked for.
        wanted: usize,
    },
}

/// The first `count` requests of the trace in `bytes`; empty lines are passed over.
///
/// # Errors
/// When one of them can't be read or contradicts itself, or there are fewer.
pub fn parse(bytes: &[u8], count: usize) -> Result<Vec<Row>, TraceError> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if rows.len() == count {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let broken = |reason: String| TraceError::Line { line: index + 1, reason };
        let row: Row = serde_json::from_slice(line).map_err(|error| broken(error.to_string()))?;
        if !(1..=LONGEST_PROMPT).contains(&row.prompt_tokens) {
            return Err(broken(format!("a prompt of {} tokens", row.prompt_tokens)));
        }
        if row.blocks.len() != row.prompt_tokens.div_ceil(BLOCK) {
            let (ids, tokens) = (row.blocks.len(), row.prompt_tokens);
            return Err(broken(format!("{ids} ids for {tokens} tokens")));
        }
        if rows.last().is_some_and(|last| last.at_ms > row.at_ms) {
            return Err(broken("arrives before the one above".to_owned()));
        }
        rows.push(row);
    }
    if rows.len() < count {
        return Err(TraceError::Short { found: rows.len(), wanted: count });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = r#"{"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [0, 1]}

{"timestamp": 3000, "input_length": 512, "output_length": 6, "hash_ids": [0], "more": 1}
"#;

    #[test]
    fn requests_are_read_in_order_up_to_the_number_asked_for() {
        let row = |at_ms, prompt_tokens, reply_tokens, blocks: &[u64]| Row {
            at_ms,
            prompt_tokens,
            reply_tokens,
            blocks: blocks.to_vec(),
        };
        let (first, second) = (row(0, 513, 5, &[0, 1]), row(3_000, 512, 6, &[0]));
        assert_eq!(parse(TWO.as_bytes(), 2), Ok(vec![first.clone(), second]));
        assert_eq!(parse(TWO.as_bytes(), 1), Ok(vec![first]));
        let short = TraceError::Short { found: 2, wanted: 3 };
        assert_eq!(parse(TWO.as_bytes(), 3), Err(short));
    }

    #[test]
    fn lines_that_contradict_themselves_are_named() {
        let line = |at: u64, tokens: u64, ids: &str| {
            format!(
                r#"{{"timestamp":{at},"input_length":{tokens},"output_length":1,"hash_ids":[{ids}]}}"#
            )
        };
        let good = line(5, 1, "7");
        for bad in [
            "{".to_owned(),
            "[]".to_owned(),
            line(5, 0, ""),
            line(5, 512, "7,8"),
            line(5, 513, "7"),
            line(5, 1 << 40, "7"),
            line(4, 1, "7"),
        ] {
            let error = parse(format!("{good}\n{bad}").as_bytes(), 2).unwrap_err();
            assert!(matches!(error, TraceError::Line { line: 2, .. }), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_requests_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..TWO.len()) {
            let spoilt = [&TWO.as_bytes()[..cut], &bytes[..]].concat();
            for input in [&bytes, &spoilt] {
                for row in parse(input, 2).unwrap_or_default() {
                    prop_assert_eq!(row.blocks.len(), row.prompt_tokens.div_ceil(BLOCK));
                }
            }
        }
    }
}
