//! The requests of a slice of a trace, and the best that any routing could do with them.

use std::collections::HashMap;
use std::time::Duration;

use super::prompt::{OPENING, message_tokens};
use super::trace::{BLOCK, Row};
use crate::workload::BLOCK_TOKENS;

/// Milliseconds that the last tick of a trace's clock is taken to last.
const TICK_MS: u64 = 3_000;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Arrival after the first one, on the trace's clock.
    pub at: Duration,
    /// Content of each block of the prompt.
    pub blocks: Vec<u64>,
    /// Tokens of each message, that is of each block.
    pub block_tokens: Vec<usize>,
    /// Tokens of the answer.
    pub reply_tokens: usize,
    /// Which conversation it belongs to, as a client would say.
    pub session: usize,
}

impl Request {
    /// Tokens of the whole prompt as an engine counts them.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.block_tokens.iter().sum::<usize>() + OPENING
    }
}

/// A slice of a trace.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// In the order of arrival.
    pub requests: Vec<Request>,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Of these, what an infinite cache that all engines share would have held, each prompt
    /// finding all of those before it: contiguous from the start, in whole blocks of an engine.
    pub ideal_cached_tokens: u64,
    /// Tokens of all different prefixes.
    pub working_set_tokens: u64,
    /// Different conversations.
    pub sessions: usize,
}

impl Slice {
    /// The slice of these rows, which are in the order of arrival.
    #[must_use]
    pub fn of(rows: &[Row]) -> Self {
        let mut slice = Self::default();
        let mut prefixes = Prefixes::default();
        let mut sessions = Sessions::default();
        for (row, at) in rows.iter().zip(arrivals(rows)) {
            let block_tokens = block_tokens(row.prompt_tokens);
            let (known, added) = prefixes.add(&row.blocks, &block_tokens);
            let request = Request {
                at,
                session: sessions.of(&row.blocks),
                blocks: row.blocks.clone(),
                block_tokens,
                reply_tokens: row.reply_tokens,
            };
            let tokens = request.tokens();
            // The opening of the answer is the same in all prompts: an equal prompt is found whole.
            let held = if known == row.blocks.len() { tokens - 1 } else { known * BLOCK };
            slice.ideal_cached_tokens += (held / BLOCK_TOKENS * BLOCK_TOKENS) as u64;
            slice.working_set_tokens += added as u64;
            slice.prompt_tokens += tokens as u64;
            slice.requests.push(request);
        }
        slice.sessions = sessions.count;
        slice
    }
}

/// Tokens of each block of a prompt: the last one has what is left, but no less than a message takes.
fn block_tokens(prompt: usize) -> Vec<usize> {
    let whole = prompt.saturating_sub(1) / BLOCK;
    let last = message_tokens(prompt - whole * BLOCK);
    std::iter::repeat_n(BLOCK, whole).chain([last]).collect()
}

/// Requests of one tick of the trace's clock are spread evenly until the next tick.
fn arrivals(rows: &[Row]) -> Vec<Duration> {
    let start = rows.first().map_or(0, |row| row.at_ms);
    let ticks: Vec<&[Row]> = rows.chunk_by(|a, b| a.at_ms == b.at_ms).collect();
    let at = |tick: &[Row]| tick.first().map_or(start, |row| row.at_ms) - start;
    let mut out = Vec::with_capacity(rows.len());
    for (index, tick) in ticks.iter().enumerate() {
        let from = at(tick);
        let next = ticks.get(index + 1).map_or(from + TICK_MS, |next| at(next));
        let step = Duration::from_millis(next - from) / u32::try_from(tick.len()).unwrap_or(1);
        let places = (0_u32..).take(tick.len());
        out.extend(places.map(|place| Duration::from_millis(from) + step * place));
    }
    out
}

/// All prefixes so far, as a tree: a node's number by its parent's and the block between them.
#[derive(Default)]
struct Prefixes(HashMap<(usize, u64), usize>);

impl Prefixes {
    /// Adds a prompt. Returns how many of its blocks, from the first on, were there already, and
    /// the tokens of the others.
    fn add(&mut self, blocks: &[u64], tokens: &[usize]) -> (usize, usize) {
        let (mut node, mut known, mut added) = (0, 0, 0);
        for (block, tokens) in blocks.iter().zip(tokens) {
            let fresh = self.0.len() + 1;
            node = *self.0.entry((node, *block)).or_insert(fresh);
            if node == fresh {
                added += tokens;
            } else {
                known += 1;
            }
        }
        (known, added)
    }
}

/// A trace names no conversations. A request is taken to go on with the one that had an earlier
/// prompt, all of its whole blocks, at the start of this one's; two blocks at least, since the first
/// is a system prompt that all share.
#[derive(Default)]
struct Sessions {
    by_last_block: HashMap<u64, usize>,
    count: usize,
}

impl Sessions {
    fn of(&mut self, blocks: &[u64]) -> usize {
        let mut own = blocks.iter().skip(1).rev();
        let session = own.find_map(|block| self.by_last_block.get(block).copied());
        let session = session.unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        // The last block is rarely whole, and then another one in the next turn.
        if let Some(last) = blocks.iter().rev().nth(1).filter(|_| blocks.len() > 2) {
            self.by_last_block.insert(*last, session);
        }
        session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at_ms: u64, prompt_tokens: usize, blocks: &[u64]) -> Row {
        Row { at_ms, prompt_tokens, reply_tokens: 1, blocks: blocks.to_vec() }
    }

    #[test]
    fn a_prompt_finds_what_any_earlier_one_shares_from_the_start() {
        let cases: &[(&str, &[u64], usize, u64)] = &[
            ("the first finds nothing", &[0, 1, 2], 1_100, 0),
            ("two blocks, then another", &[0, 1, 3], 1_100, 1_024),
            ("a gap ends it", &[9, 1, 2], 1_100, 0),
            // 1,104 tokens with the opening of the answer: all but the last one, in whole blocks.
            ("an equal prompt", &[0, 1, 2], 1_100, 1_088),
            ("longer", &[0, 1, 3, 4], 1_600, 1_536),
        ];
        let mut rows = Vec::new();
        let mut before = 0;
        for (what, blocks, tokens, held) in cases {
            rows.push(row(0, *tokens, blocks));
            let ideal = Slice::of(&rows).ideal_cached_tokens;
            assert_eq!(ideal - before, *held, "{what}");
            before = ideal;
        }
        let slice = Slice::of(&rows);
        assert_eq!(slice.prompt_tokens, 4 * 1_104 + 1_604);
        // 0, 1, 2 and 3 behind them, 9, 1, 2 anew, 4 with what is left of the last prompt.
        assert_eq!(slice.working_set_tokens, 1_100 + 76 + 1_100 + 64);
    }

    #[test]
    fn a_rest_too_small_for_a_message_is_made_as_large() {
        assert_eq!(block_tokens(512), [512]);
        assert_eq!(block_tokens(1_000), [512, 488]);
        assert_eq!(block_tokens(513), [512, message_tokens(1)]);
        assert!(message_tokens(1) > 1);
    }

    #[test]
    fn one_ticks_requests_are_spread_until_the_next_tick() {
        let rows = [7_000, 7_000, 7_000, 10_000, 16_000, 16_000].map(|at| row(at, 1, &[0]));
        let at = arrivals(&rows).iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(at, [0, 1_000, 2_000, 3_000, 9_000, 10_500]);
        assert!(arrivals(&[]).is_empty());
    }

    #[test]
    fn a_conversation_goes_on_where_an_earlier_prompt_ended() {
        let cases: &[(&str, &[u64], usize)] = &[
            ("a conversation", &[0, 1, 2, 3], 0),
            ("another one with the same system prompt", &[0, 4, 5], 1),
            ("the first one's next turn", &[0, 1, 2, 6, 7, 8], 0),
            ("and the one after", &[0, 1, 2, 6, 7, 9, 10], 0),
            ("the second one's", &[0, 4, 11], 1),
            ("a fork that shares less than a whole prompt", &[0, 1, 12, 13], 2),
            ("one of the system prompt alone", &[0, 14], 3),
            ("and another one", &[0, 15], 4),
        ];
        let rows: Vec<Row> =
            cases.iter().map(|(_, blocks, _)| row(0, blocks.len() * BLOCK, blocks)).collect();
        let slice = Slice::of(&rows);
        for ((what, _, session), request) in cases.iter().zip(&slice.requests) {
            assert_eq!(request.session, *session, "{what}");
        }
        assert_eq!(slice.sessions, 5);
    }
}
