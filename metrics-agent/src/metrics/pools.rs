//! What the endpoints of each pool say together.

use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::Load;

/// One endpoint of one pool.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Namespace of the endpoint.
    pub namespace: &'a str,
    /// Its name there.
    pub name: &'a str,
    /// May it be picked?
    pub ready: bool,
    /// What it said last; what is not known is left out of every figure.
    pub load: Load,
}

/// Mean and standard deviation (of all, not of a sample) of what the endpoints of a pool say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The deviation from it.
    pub deviation: f64,
}

impl Spread {
    /// `None` if nobody says anything.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f32> + Clone) -> Option<Self> {
        let count = values.clone().fold(0.0, |count, _| count + 1.0);
        if count == 0.0 {
            return None;
        }
        let mean = values.clone().map(f64::from).sum::<f64>() / count;
        let variance = values.map(|value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count;
        Some(Self { mean, deviation: variance.sqrt() })
    }
}

/// The figures of one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolFigures {
    /// The pool's name without its namespace, as llm-d tells it; with it if another pool has the same name.
    pub name: String,
    /// Endpoints that may be picked.
    pub ready: u32,
    /// Share of KV blocks in use, 0 to 1.
    pub kv_usage: Option<Spread>,
    /// Requests that wait.
    pub waiting: Option<Spread>,
    /// Requests that run.
    pub running: Option<Spread>,
    /// Waiting requests of each endpoint that tells them, by its name: without its namespace, unless another
    /// endpoint of the pool has the same name.
    pub queues: Vec<(String, f32)>,
}

/// Figures of all pools, by `namespace/name` or a name without a slash.
#[must_use]
pub fn figures(pools: &BTreeMap<String, Vec<Member<'_>>>) -> Vec<PoolFigures> {
    let short = |pool: &str| pool.rsplit_once('/').map_or(pool, |(_, name)| name).to_owned();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for pool in pools.keys() {
        *uses.entry(short(pool)).or_default() += 1;
    }
    let figures = pools.iter().map(|(pool, members)| {
        let name = short(pool);
        let alone = uses.get(&name).is_some_and(|uses| *uses == 1);
        of_pool(if alone { name } else { pool.clone() }, members)
    });
    figures.collect()
}

fn of_pool(name: String, members: &[Member<'_>]) -> PoolFigures {
    let spread = |signal: fn(&Load) -> Option<f32>| {
        Spread::of(members.iter().filter_map(move |member| signal(&member.load)))
    };
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for member in members {
        *uses.entry(member.name).or_default() += 1;
    }
    let queues = members.iter().filter_map(|member| {
        let alone = uses.get(member.name).is_some_and(|uses| *uses == 1);
        let full = || format!("{}/{}", member.namespace, member.name);
        Some((if alone { member.name.to_owned() } else { full() }, member.load.waiting?))
    });
    let ready = members.iter().filter(|member| member.ready).count();
    PoolFigures {
        name,
        ready: u32::try_from(ready).unwrap_or(u32::MAX),
        kv_usage: spread(|load| load.kv_usage),
        waiting: spread(|load| load.waiting),
        running: spread(|load| load.running),
        queues: queues.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(
        namespace: &'static str,
        name: &'static str,
        waiting: Option<f32>,
    ) -> Member<'static> {
        let load = Load { waiting, running: waiting.map(|n| n + 1.0), kv_usage: None };
        Member { namespace, name, ready: waiting.is_some(), load }
    }

    #[test]
    fn unknown_signals_are_left_out() {
        let members =
            vec![member("n", "a", Some(2.0)), member("n", "b", None), member("n", "c", Some(4.0))];
        let pools = BTreeMap::from([("n/p".to_owned(), members), ("n/q".to_owned(), vec![])]);
        let spread = |mean| Some(Spread { mean, deviation: 1.0 });
        let nothing = PoolFigures {
            name: "q".into(),
            ready: 0,
            kv_usage: None,
            waiting: None,
            running: None,
            queues: vec![],
        };
        let some = PoolFigures {
            name: "p".into(),
            ready: 2,
            waiting: spread(3.0),
            running: spread(4.0),
            queues: vec![("a".into(), 2.0), ("c".into(), 4.0)],
            ..nothing.clone()
        };
        assert_eq!(figures(&pools), [some, nothing]);
    }

    #[test]
    fn names_are_told_apart_by_their_namespaces_where_they_must_be() {
        let members = || {
            vec![
                member("n", "a", Some(0.0)),
                member("m", "a", Some(1.0)),
                member("m", "b", Some(2.0)),
            ]
        };
        let pools = ["n/p", "m/p", "m/q", "default"].map(|pool| (pool.to_owned(), members()));
        let figures = figures(&BTreeMap::from(pools));
        let names: Vec<_> = figures.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["default", "m/p", "q", "n/p"]);
        let queues: Vec<_> = figures[0].queues.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(queues, ["n/a", "m/a", "b"]);
    }
}
