//! Both sides of each request: what the filter wrote into Envoy's access log, and what the simulated
//! engines remember of arrivals.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::replay::Answered;
use crate::verdict::{Kind, Lack, Observation};

/// What the filter believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// Tokens that the picked endpoint was believed to hold.
    pub tokens: u64,
    /// Where that came from.
    pub kind: Kind,
}

/// What an engine held.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Arrival {
    request_id: Option<String>,
    /// Tokens of the prompt that it held, in whole blocks.
    pub cached_on_arrival: u64,
    /// Why it did not hold more.
    pub first_missing: Option<Lack>,
}

#[derive(Deserialize)]
struct Line {
    request_id: Option<String>,
    matched_tokens: Option<String>,
    matched_kind: Option<Kind>,
}

/// Beliefs by request id. Lines that are not whole yet, or not of a generation request, are left
/// out.
#[must_use]
pub fn beliefs(log: &str) -> HashMap<String, Belief> {
    let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .filter_map(|line| {
            let line: Line = serde_json::from_str(line).ok()?;
            let tokens = line.matched_tokens?.parse().ok()?;
            Some((line.request_id?, Belief { tokens, kind: line.matched_kind? }))
        })
        .collect()
}

/// Reads the access log; waits until it has all of `requests`, or says how many it lacks.
///
/// # Errors
/// When some do not come.
pub async fn all_beliefs(log: &Path, requests: &[Answered]) -> Result<HashMap<String, Belief>> {
    let complete = async || {
        let beliefs = beliefs(&std::fs::read_to_string(log).ok()?);
        requests.iter().all(|one| beliefs.contains_key(&one.request)).then_some(beliefs)
    };
    let limit = std::time::Duration::from_secs(20);
    let what = "a record with matched_tokens and matched_kind of every request";
    Ok(warmroute_demo::processes::wait_until(what, limit, log, complete).await?)
}

/// Arrivals by request id, from the simulator's `GET /state`.
///
/// # Errors
/// When it has another form.
pub fn arrivals(state: &Value) -> Result<HashMap<String, Arrival>> {
    let replicas = state["replicas"].as_array().context("the simulator's state has no replicas")?;
    let mut all = HashMap::new();
    for replica in replicas {
        let records = Vec::<Arrival>::deserialize(&replica["requests"])
            .context("the simulator's records have another form")?;
        for record in records {
            if let Some(id) = record.request_id.clone() {
                all.insert(id, record);
            }
        }
    }
    Ok(all)
}

/// Puts the two sides together. `arrivals` is empty where engines don't tell; where they do, every
/// request must have arrived somewhere.
///
/// # Errors
/// When a side is missing for a request.
pub fn join(
    answered: &[Answered],
    beliefs: &HashMap<String, Belief>,
    arrivals: &HashMap<String, Arrival>,
) -> Result<Vec<Observation>> {
    answered
        .iter()
        .map(|one| {
            let request = &one.request;
            let belief =
                beliefs.get(request).with_context(|| format!("{request} is not in the log"))?;
            let arrival = arrivals.get(request);
            if !arrivals.is_empty() {
                arrival.with_context(|| format!("{request} arrived at no engine"))?;
            }
            Ok(Observation {
                request: request.clone(),
                believed: belief.tokens,
                kind: belief.kind,
                cached: one.cached_tokens,
                held: arrival.map(|arrival| arrival.cached_on_arrival),
                lack: arrival.and_then(|arrival| arrival.first_missing),
                prompt_tokens: one.prompt_tokens,
                prompt_bytes: one.prompt_bytes,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOG: &str = r#"{"request_id":"a","matched_tokens":"96","matched_kind":"events"}
{"request_id":"b","matched_tokens":"0","matched_kind":"expected"}
{"request_id":"health","matched_tokens":null,"matched_kind":null}
not a record
{"request_id":"c","matched_tokens":"16","matched_kind":"events"}"#;

    #[test]
    fn whole_records_of_generation_requests_are_read() {
        let beliefs = beliefs(LOG);
        assert_eq!(beliefs["a"], Belief { tokens: 96, kind: Kind::Events });
        assert_eq!(beliefs["b"].kind, Kind::Expected);
        assert_eq!(beliefs.len(), 2, "the last line is not whole");
    }

    #[test]
    fn both_sides_are_joined_by_request_id() {
        let state = json!({"replicas": [
            {"requests": [{"request_id": "a", "cached_on_arrival": 112, "first_missing": "not_held", "seq": 1}]},
            {"requests": [{"request_id": "b", "cached_on_arrival": 0, "first_missing": {"eviction_told": {"ms": 3.5}}},
                          {"request_id": null, "cached_on_arrival": 0, "first_missing": null}]},
        ]});
        let arrivals = arrivals(&state).unwrap();
        let answered = |request: &str| Answered {
            request: request.to_owned(),
            prompt_tokens: 200,
            cached_tokens: 100,
            prompt_bytes: 800,
        };
        let joined = join(&[answered("a"), answered("b")], &beliefs(LOG), &arrivals).unwrap();
        assert_eq!((joined[0].believed, joined[0].held), (96, Some(112)));
        assert_eq!(joined[1].lack, Some(Lack::EvictionTold { ms: 3.5 }));
        let only_log = join(&[answered("a")], &beliefs(LOG), &HashMap::new()).unwrap();
        assert_eq!(only_log[0].truth(), 100);
        for (request, why) in [("c", "is not in the log"), ("a", "arrived at no engine")] {
            let arrivals = HashMap::from([("x".to_owned(), arrivals["a"].clone())]);
            let error = join(&[answered(request)], &beliefs(LOG), &arrivals).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
