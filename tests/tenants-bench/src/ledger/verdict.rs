//! The ledger's rows against what the engines counted.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::plan::{Call, Cut};

/// How a request ended, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Answered in full with this status.
    Answered(u16),
    /// The client hung up.
    Left,
    /// In any other way.
    Failed(String),
}

/// A row of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub tenant: String,
    /// The model that was asked for.
    pub model: String,
    /// Tokens of the prompt.
    pub input: u64,
    /// Of these, cached.
    pub cached: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// What an engine counted for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Tokens of the prompt.
    pub input: u64,
    /// Of these, cached.
    pub cached: u64,
    /// Tokens of the answer, as far as it was given out.
    pub output: u64,
}

/// How exact the ledger is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Requests sent.
    pub requests: usize,
    /// Tokens in which ledger and engines differ, over all requests that ended by themselves.
    pub token_difference: u64,
    /// Requests that an engine had or that were answered, and that have no row.
    pub lost: usize,
    /// Rows beyond one for a request.
    pub duplicated: usize,
    /// Requests whose client hung up in the middle of the answer.
    pub disconnects: usize,
    /// Most tokens in which ledger and engine differ for one of those: a chunk has one.
    pub max_disconnect_error_tokens: u64,
    /// How many of those have how many tokens more (or, if negative, fewer) than the engine gave out.
    pub disconnect_errors: BTreeMap<i64, usize>,
    /// Requests whose client hung up before the answer, and most tokens in which these differ: the prompt's are
    /// estimated.
    pub early_disconnects: usize,
    /// See [`early_disconnects`](Self::early_disconnects).
    pub max_early_error_tokens: u64,
    /// Like `token_difference`, of cached tokens.
    pub cached_difference: u64,
    /// Rows with another tenant or model than the request had.
    pub misattributed: usize,
    /// Requests that neither ended by themselves nor by their client.
    pub failed: usize,
    /// Requests by path, and of those the streams.
    pub by_path: BTreeMap<String, (usize, usize)>,
    /// In the middle of it.
    pub agent_restarts: usize,
    /// Likewise: changed listeners that Envoy took.
    pub reloads: u64,
}

/// Compares, for each request, what its client saw, the ledger's rows and the engines' counts.
#[must_use]
pub fn judge(
    calls: &[Call],
    seen: &[Seen],
    rows: &HashMap<String, Vec<Row>>,
    engines: &HashMap<String, Counted>,
) -> Ledger {
    let mut ledger = Ledger { requests: calls.len(), ..Ledger::default() };
    for (call, seen) in calls.iter().zip(seen) {
        let by_path = ledger.by_path.entry(call.path.to_owned()).or_default();
        by_path.0 += 1;
        by_path.1 += usize::from(call.stream);
        let counted = engines.get(&call.id);
        let rows = rows.get(&call.id).map(Vec::as_slice).unwrap_or_default();
        let known = counted.is_some() || matches!(seen, Seen::Answered(_));
        ledger.lost += usize::from(known && rows.is_empty());
        ledger.duplicated += rows.len().saturating_sub(1);
        let fine = match call.cut {
            Cut::Never => *seen == Seen::Answered(200),
            Cut::After(_) | Cut::Early => *seen == Seen::Left,
        };
        ledger.failed += usize::from(!fine);
        let Some(row) = rows.first() else { continue };
        ledger.misattributed +=
            usize::from((&*row.tenant, &*row.model) != (call.tenant, call.model));
        if !fine {
            continue;
        }
        let Counted { input, cached, output } = counted.copied().unwrap_or_default();
        let off = row.input.abs_diff(input) + row.output.abs_diff(output);
        match call.cut {
            Cut::Never => {
                ledger.token_difference += off;
                ledger.cached_difference += row.cached.abs_diff(cached);
            }
            Cut::After(_) => {
                ledger.disconnects += 1;
                let more = (row.input + row.output).cast_signed() - (input + output).cast_signed();
                *ledger.disconnect_errors.entry(more).or_default() += 1;
                ledger.max_disconnect_error_tokens = ledger.max_disconnect_error_tokens.max(off);
            }
            Cut::Early => {
                ledger.early_disconnects += 1;
                ledger.max_early_error_tokens = ledger.max_early_error_tokens.max(off);
            }
        }
    }
    ledger
}

impl Ledger {
    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let zero: [(&str, u64); 6] = [
            ("tokens of difference", self.token_difference),
            ("cached tokens of difference", self.cached_difference),
            ("records lost", self.lost as u64),
            ("records doubled", self.duplicated as u64),
            ("records with another tenant or model", self.misattributed as u64),
            ("requests failed", self.failed as u64),
        ];
        let mut missed: Vec<String> = zero
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("ledger: {count} {what}"))
            .collect();
        if self.max_disconnect_error_tokens > 1 {
            missed.push(format!(
                "ledger: after a disconnect {} tokens of difference",
                self.max_disconnect_error_tokens
            ));
        }
        if self.agent_restarts == 0 || self.reloads == 0 {
            missed.push("ledger: no restart or no reload in the middle".to_owned());
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, cut: Cut) -> Call {
        Call {
            id: id.to_owned(),
            tenant: "t",
            model: "m",
            path: "/v1/messages",
            stream: true,
            body: String::new(),
            cut,
        }
    }

    fn row(input: u64, output: u64) -> Row {
        Row { tenant: "t".to_owned(), model: "m".to_owned(), input, cached: 0, output }
    }

    #[test]
    fn every_kind_of_difference_is_told() {
        let calls = [
            call("same", Cut::Never),
            call("off", Cut::Never),
            call("lost", Cut::Never),
            call("twice", Cut::Never),
            call("cut", Cut::After(2)),
            call("early", Cut::Early),
            call("never-arrived", Cut::Early),
            call("failed", Cut::Never),
        ];
        let seen: Vec<Seen> = calls
            .iter()
            .map(|call| match (&*call.id, call.cut) {
                ("failed", _) => Seen::Failed("reset".to_owned()),
                (_, Cut::Never) => Seen::Answered(200),
                _ => Seen::Left,
            })
            .collect();
        let counted = Counted { input: 10, cached: 0, output: 5 };
        let engines: HashMap<_, _> = ["same", "off", "lost", "twice", "cut", "early"]
            .map(|id| (id.to_owned(), counted))
            .into();
        let other = Row { tenant: "u".to_owned(), ..row(10, 5) };
        let rows = HashMap::from([
            ("same".to_owned(), vec![row(10, 5)]),
            ("off".to_owned(), vec![row(11, 7)]),
            ("twice".to_owned(), vec![other.clone(), other]),
            ("cut".to_owned(), vec![row(10, 4)]),
            ("early".to_owned(), vec![row(16, 5)]),
        ]);
        let ledger = judge(&calls, &seen, &rows, &engines);
        let expected = Ledger {
            requests: 8,
            token_difference: 3,
            lost: 1,
            duplicated: 1,
            disconnects: 1,
            max_disconnect_error_tokens: 1,
            disconnect_errors: [(-1, 1)].into(),
            early_disconnects: 1,
            max_early_error_tokens: 6,
            misattributed: 1,
            failed: 1,
            by_path: [("/v1/messages".to_owned(), (8, 8))].into(),
            ..Ledger::default()
        };
        assert_eq!(ledger, expected);
        assert_eq!(ledger.missed().len(), 6, "{:?}", ledger.missed());
        let fine = Ledger { agent_restarts: 1, reloads: 1, ..Ledger::default() };
        assert_eq!(fine.missed(), Vec::<String>::new());
    }
}
