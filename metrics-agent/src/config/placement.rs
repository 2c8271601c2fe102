//! Which pools an endpoint is in, and on which of their ports it is when it names none itself.
//!
//! As llm-d's discovery has it: one endpoint for each target port, `<name>-rank-<i>`; the annotation
//! `llm-d.ai/active-ports` (here a label) says which of them are in use.

use super::error::Problem;
use super::file_discovery::{EndpointSpec, Entry};
use super::gateway::pool::PoolSpec;
use std::net::SocketAddr;

/// Ports that are in use, separated by commas, and its former name.
const ACTIVE_PORTS: [&str; 2] =
    ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"];

/// Bytes of the names of an endpoint's pools together: with its labels it has to fit into one frame between Envoy's
/// workers ([`FRAME_BYTES`](warmroute_shared_state::frame::FRAME_BYTES)).
const MAX_POOL_BYTES: usize = 6 << 10;

/// The endpoints that an entry of a list stands for, and what is strange about it.
///
/// # Errors
/// If it names no port and its pool does not say which, or it is in more pools than can be told.
pub fn place(
    entry: &Entry,
    pools: &[PoolSpec],
) -> Result<(Vec<EndpointSpec>, Option<Problem>), Problem> {
    let within: Vec<&PoolSpec> =
        pools.iter().filter(|pool| pool.selects(&entry.namespace, &entry.labels)).collect();
    let bytes: usize = within.iter().map(|pool| pool.head.full_name().len()).sum();
    if bytes > MAX_POOL_BYTES {
        return Err(Problem::Conflict(format!(
            "endpoint `{}/{}` is in {} pools, whose names have {bytes} bytes together, more than {MAX_POOL_BYTES}; \
             narrow the pools' selectors",
            entry.namespace,
            entry.name,
            within.len()
        )));
    }
    let spec = |name: String, port: u16| EndpointSpec {
        namespace: entry.namespace.clone(),
        name,
        address: SocketAddr::new(entry.ip, port),
        labels: entry.labels.clone(),
        pools: within.iter().map(|pool| pool.head.full_name()).collect(),
    };
    if let Some(port) = entry.port {
        let remark = (within.is_empty() && !pools.is_empty()).then(|| in_no_pool(entry, pools));
        return Ok((vec![spec(entry.name.clone(), port)], remark));
    }
    let pool = match within.as_slice() {
        [pool] => pool,
        [] => return Err(Problem::MissingField("port")),
        [first, second, ..] => {
            return Err(Problem::Conflict(format!(
                "field `port` is missing, and the endpoint is in two pools, `{}` and `{}`; add it",
                first.head.full_name(),
                second.head.full_name()
            )));
        }
    };
    let active = active_ports(entry)?;
    let in_use = |port: &u16| active.as_ref().is_none_or(|active| active.contains(port));
    let ranks = (0usize..).zip(&pool.target_ports).filter(|(_, port)| in_use(port));
    let specs: Vec<_> =
        ranks.map(|(rank, port)| spec(format!("{}-rank-{rank}", entry.name), *port)).collect();
    let remark = specs.is_empty().then(|| {
        Problem::Conflict(
            "none of its active ports is a target port of its pool: it is no endpoint".into(),
        )
    });
    Ok((specs, remark))
}

fn active_ports(entry: &Entry) -> Result<Option<Vec<u16>>, Problem> {
    let Some(text) = ACTIVE_PORTS.iter().find_map(|label| entry.labels.get(*label)) else {
        return Ok(None);
    };
    let ports = text.split(',').map(|port| port.trim().parse().ok().filter(|port| *port > 0));
    match ports.collect::<Option<Vec<u16>>>() {
        Some(ports) => Ok(Some(ports)),
        None => Err(Problem::bad(ACTIVE_PORTS[0], text, "ports, separated by commas")),
    }
}

fn in_no_pool(entry: &Entry, pools: &[PoolSpec]) -> Problem {
    let elsewhere = pools.iter().find(|pool| pool.selects_labels(&entry.labels));
    Problem::Conflict(match elsewhere {
        Some(pool) => format!(
            "endpoint `{}/{}` is in no pool: it has the labels of `{}`, in another namespace; add `namespace: {}`",
            entry.namespace,
            entry.name,
            pool.head.full_name(),
            pool.head.namespace
        ),
        None => format!(
            "endpoint `{}/{}` is in no pool and gets no requests; give it the labels of a pool's selector",
            entry.namespace, entry.name
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::object::Head;
    use std::collections::BTreeMap;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn pool(name: &str, selector: &[(&str, &str)], ports: &[u16]) -> PoolSpec {
        PoolSpec {
            head: Head { namespace: "n".into(), name: name.into(), ..Head::default() },
            selector: labels(selector),
            target_ports: ports.to_vec(),
            h2c: false,
            picker: None,
            fail_open: false,
        }
    }

    fn entry(namespace: &str, port: Option<u16>, pairs: &[(&str, &str)]) -> Entry {
        let ip = "10.0.0.1".parse().unwrap();
        Entry { namespace: namespace.into(), name: "e".into(), ip, port, labels: labels(pairs) }
    }

    fn names(specs: &[EndpointSpec]) -> Vec<(String, String)> {
        specs.iter().map(|spec| (spec.name.clone(), spec.address.to_string())).collect()
    }

    #[test]
    fn an_endpoint_is_in_every_pool_that_selects_it() {
        let pools = [
            pool("a", &[("x", "1")], &[80]),
            pool("b", &[], &[80]),
            pool("c", &[("x", "2")], &[80]),
        ];
        let (specs, remark) = place(&entry("n", Some(7), &[("x", "1")]), &pools).unwrap();
        assert_eq!(names(&specs), [("e".into(), "10.0.0.1:7".into())]);
        assert_eq!(
            (specs[0].pools.as_slice(), remark),
            (&["n/a".to_owned(), "n/b".to_owned()][..], None)
        );
        let (specs, remark) = place(&entry("n", Some(7), &[]), &[]).unwrap();
        assert!(specs[0].pools.is_empty() && remark.is_none(), "there are no pools to be in");
    }

    #[test]
    fn an_endpoint_is_in_no_more_pools_than_a_frame_takes() {
        let name = |n: usize| format!("{n:0>198}");
        let pools: Vec<_> = (0..40).map(|n| pool(&name(n), &[], &[80])).collect();
        assert!(place(&entry("n", Some(7), &[]), &pools[..30]).is_ok());
        let error = place(&entry("n", Some(7), &[]), &pools).unwrap_err().to_string();
        assert!(error.contains("`n/e` is in 40 pools, whose names have 8000 bytes"), "{error}");
    }

    #[test]
    fn an_endpoint_of_no_pool_is_told() {
        let pools = [pool("a", &[("x", "1")], &[80])];
        for (namespace, value, message) in [
            ("m", "1", "has the labels of `n/a`, in another namespace; add `namespace: n`"),
            ("n", "2", "is in no pool and gets no requests"),
        ] {
            let (specs, remark) =
                place(&entry(namespace, Some(7), &[("x", value)]), &pools).unwrap();
            assert_eq!(specs.len(), 1);
            assert!(remark.unwrap().to_string().contains(message));
        }
    }

    #[test]
    fn without_a_port_it_is_one_endpoint_for_each_target_port() {
        let pools = [pool("a", &[], &[8000, 8001, 8002])];
        let (specs, _) = place(&entry("n", None, &[]), &pools).unwrap();
        let all = ["8000", "8001", "8002"].iter().enumerate();
        let expected: Vec<_> =
            all.map(|(i, p)| (format!("e-rank-{i}"), format!("10.0.0.1:{p}"))).collect();
        assert_eq!(names(&specs), expected);
        let (specs, _) =
            place(&entry("n", None, &[(ACTIVE_PORTS[0], "8002, 8000")]), &pools).unwrap();
        assert_eq!(names(&specs), [expected[0].clone(), expected[2].clone()]);
        let (specs, _) = place(&entry("n", None, &[(ACTIVE_PORTS[1], "8001")]), &pools).unwrap();
        assert_eq!(names(&specs), [expected[1].clone()]);
        let (specs, remark) = place(&entry("n", None, &[(ACTIVE_PORTS[0], "1")]), &pools).unwrap();
        assert!(specs.is_empty() && remark.unwrap().to_string().contains("no endpoint"));
    }

    #[test]
    fn without_a_port_exactly_one_pool_must_say_it() {
        let pools = [pool("a", &[], &[80]), pool("b", &[], &[80])];
        let two = place(&entry("n", None, &[]), &pools).unwrap_err();
        assert!(two.to_string().contains("two pools, `n/a` and `n/b`"), "{two}");
        let none = place(&entry("m", None, &[]), &pools).unwrap_err();
        assert_eq!(none, Problem::MissingField("port"));
        let bad = place(&entry("n", None, &[(ACTIVE_PORTS[0], "80,x")]), &pools[..1]).unwrap_err();
        assert!(bad.to_string().contains("`llm-d.ai/active-ports` is `80,x`"), "{bad}");
    }
}
