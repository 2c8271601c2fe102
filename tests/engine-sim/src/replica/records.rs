//! What a replica remembers of the requests it got, so that a test can see what arrived.

use std::collections::VecDeque;

use hyper::HeaderMap;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::transfer::Transfer;
use crate::kv_events::evictions::Lack;

/// Longest header value kept.
const MAX_VALUE: usize = 512;

/// One generation request.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Counts up from 0 since the last reset.
    pub seq: u64,
    /// The request's path, query included.
    pub path: String,
    /// `x-request-id`.
    pub request_id: Option<String>,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// XXH3-64 of the body as received, 16 hex digits.
    pub body_xxh3: String,
    /// Model name as the request had it; empty if it was turned away before it was read.
    pub model: String,
    /// Its part in prefill and decode at different engines, if it has one.
    pub transfer: Option<Transfer>,
    /// Prompt tokens whose KV came from another engine.
    pub transferred_tokens: usize,
    /// Tokens of the prompts; 0 if the request was turned away before they were counted.
    pub prompt_tokens: usize,
    /// Of these, tokens that were cached on arrival.
    pub cached_on_arrival: usize,
    /// Why the first whole block of the prompt that was not held on arrival was not; none if all
    /// were, or without cache events.
    pub first_missing: Option<Lack>,
    /// Tokens that admission then found cached, as `usage` tells them; 0 until the first token.
    pub cached_tokens: usize,
    /// Tokens of the answer, as far as it was given to the connection; 0 until the request is over.
    pub completion_tokens: usize,
    /// HTTP status, 0 while there is none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Header names and values, in order. Values that may hold a credential are `***`.
    pub headers: Vec<(String, String)>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Not yet.
    InFlight,
    /// Answered in full.
    Finished,
    /// Answered with an error.
    Rejected,
    /// The client went away, or a fault cut it off.
    Aborted,
}

/// The latest requests, bounded.
#[derive(Debug)]
pub struct Records {
    kept: VecDeque<Record>,
    limit: usize,
    next: u64,
}

impl Records {
    /// Keeps at most `limit` requests.
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, next: 0 }
    }

    /// Notes a request that was read; returns its number.
    pub fn arrived(&mut self, path: &str, headers: &HeaderMap, body: &[u8]) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.kept.len() >= self.limit {
            self.kept.pop_front();
        }
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), shown(name.as_str(), value.as_bytes())))
            .collect();
        if self.limit > 0 {
            self.kept.push_back(Record {
                seq,
                path: path.chars().take(MAX_VALUE).collect(),
                request_id: headers
                    .iter()
                    .find(|(name, _)| name == "x-request-id")
                    .map(|(_, value)| value.clone()),
                body_bytes: body.len(),
                body_xxh3: format!("{:016x}", xxh3_64(body)),
                model: String::new(),
                transfer: None,
                transferred_tokens: 0,
                prompt_tokens: 0,
                cached_on_arrival: 0,
                first_missing: None,
                cached_tokens: 0,
                completion_tokens: 0,
                status: 0,
                outcome: Outcome::InFlight,
                headers,
            });
        }
        seq
    }

    /// Changes a record, if it is still kept.
    pub fn update(&mut self, seq: u64, change: impl FnOnce(&mut Record)) {
        let first = self.kept.front().map_or(0, |record| record.seq);
        let at = seq.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(record) =
            at.and_then(|at| self.kept.get_mut(at)).filter(|record| record.seq == seq)
        {
            change(record);
        }
    }

    /// Requests ever noted.
    pub fn total(&self) -> u64 {
        self.next
    }

    /// Those kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.kept.iter()
    }
}

fn shown(name: &str, value: &[u8]) -> String {
    let secret = ["authorization", "cookie", "api-key", "token", "secret"]
        .iter()
        .any(|word| name.contains(word));
    if secret {
        return "***".to_owned();
    }
    String::from_utf8_lossy(value.get(..MAX_VALUE).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_and_hides_credentials() {
        let mut records = Records::new(2);
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "r-1".parse().unwrap());
        headers.insert("authorization", "Bearer abc".parse().unwrap());
        for body in ["a", "b", "c"] {
            records.arrived("/v1/completions", &headers, body.as_bytes());
        }
        records.update(0, |_| panic!("no longer kept"));
        records.update(2, |record| record.outcome = Outcome::Finished);
        let kept: Vec<_> = records.iter().map(|record| (record.seq, record.outcome)).collect();
        assert_eq!(kept, [(1, Outcome::InFlight), (2, Outcome::Finished)]);
        let last = records.iter().last().unwrap();
        assert_eq!(last.body_xxh3, format!("{:016x}", xxh3_64(b"c")));
        assert_eq!(last.request_id.as_deref(), Some("r-1"));
        assert!(last.headers.contains(&("authorization".to_owned(), "***".to_owned())));
        assert_eq!(records.total(), 3);
    }
}
