//! llm-d's file-discovery list: `endpoints: [{name, namespace, address, port, labels}]`.
//!
//! Stricter than llm-d, which skips bad entries with a log line: here one bad entry refuses the
//! whole list, so that a half-written file never shrinks the pool. IPv6 is allowed.

use super::document::Document;
use super::error::{Issue, Problem};
use super::object::{Fault, checked_name};
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use warmroute_shared_state::endpoint::EndpointId;

/// Labels of an endpoint.
const MAX_LABELS: usize = 64;
/// Bytes of all labels of an endpoint together: with its names it has to fit into one frame
/// between Envoy's workers ([`FRAME_BYTES`](warmroute_shared_state::frame::FRAME_BYTES)).
const MAX_LABEL_BYTES: usize = 8 << 10;

/// An endpoint as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Namespace, `default` if none was given.
    pub namespace: String,
    /// Name, unique in its namespace.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Labels, sorted by key.
    pub labels: BTreeMap<String, String>,
    /// Pools that it is in, `namespace/name`; empty if there are no pools.
    pub pools: Vec<String>,
}

impl EndpointSpec {
    /// Identity on the stream: depends on name and address.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        EndpointId::new(&self.namespace, &self.name, &self.address.to_string())
    }

    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// An entry of a list. Without a port it stands for one endpoint on each port of its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Namespace, `default` if none was given.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Where it is.
    pub ip: IpAddr,
    /// Where it listens.
    pub port: Option<u16>,
    /// Labels, sorted by key.
    pub labels: BTreeMap<String, String>,
}

/// An entry and the line that it is written at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Line of the file, from 1.
    pub line: u64,
    /// What stands there.
    pub entry: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawList {
    endpoints: Vec<RawEndpoint>,
    #[serde(default, rename = "kind")]
    _kind: Option<String>,
    #[serde(default, rename = "apiVersion")]
    _api_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEndpoint {
    name: Spanned<String>,
    namespace: Option<Spanned<String>>,
    address: Spanned<String>,
    port: Option<Spanned<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads the endpoints of one document.
///
/// # Errors
/// The first fault of the YAML, or every entry's first fault.
pub fn read(document: &Document<'_>) -> Result<Vec<Located>, Vec<Issue>> {
    let list: RawList = document.parse().map_err(|issue| vec![issue])?;
    let mut endpoints = Vec::new();
    let mut issues = Vec::new();
    for raw in list.endpoints {
        match compile(raw) {
            Ok((line, entry)) => endpoints.push(Located { line: document.line(line), entry }),
            Err((line, problem)) => issues.push(document.issue(line, problem)),
        }
    }
    if issues.is_empty() { Ok(endpoints) } else { Err(issues) }
}

fn compile(raw: RawEndpoint) -> Result<(u64, Entry), Fault> {
    let line = raw.name.referenced.line();
    let name = checked_name("name", raw.name)?;
    let namespace = match raw.namespace {
        Some(namespace) => checked_name("namespace", namespace)?,
        None => "default".to_owned(),
    };
    let ip = ip(&raw.address)?;
    let port = raw.port.as_ref().map(port).transpose()?;
    let bytes: usize = raw.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if raw.labels.len() > MAX_LABELS || bytes > MAX_LABEL_BYTES {
        let given = format!("{} labels of {bytes} bytes", raw.labels.len());
        return Err((
            line,
            Problem::bad("labels", &given, "at most 64 labels of 8192 bytes together"),
        ));
    }
    Ok((line, Entry { namespace, name, ip, port, labels: raw.labels }))
}

/// An address as Envoy writes it: brackets off, IPv6 shortened by the standard library.
fn ip(address: &Spanned<String>) -> Result<IpAddr, Fault> {
    let text = address.value.as_str();
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let usable = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
    bare.parse().ok().filter(usable).ok_or_else(|| {
        let expected = "the IPv4 or IPv6 address of one host (names are not resolved)";
        (address.referenced.line(), Problem::bad("address", text, expected))
    })
}

fn port(port: &Spanned<String>) -> Result<u16, Fault> {
    port.value.trim().parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        (port.referenced.line(), Problem::bad("port", &port.value, "a number from 1 to 65535"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Vec<Located>, Vec<Issue>> {
        read(&Document::new(Path::new("pool.yaml"), 0, text))
    }

    #[test]
    fn a_list_as_llm_d_writes_it() {
        let text = "endpoints:\n- name: a\n  address: 10.0.0.1\n  port: \"8000\"\n- name: b\n  \
                    namespace: gpu\n  address: '[fd00:0::1]'\n  port: 8001\n  labels: {x: \"1\", b: true}\n";
        let found = parse(text).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|e| {
                (e.line, &*e.entry.namespace, &*e.entry.name, e.entry.ip.to_string(), e.entry.port)
            })
            .collect();
        let expected = [
            (2, "default", "a", "10.0.0.1".to_owned(), Some(8000)),
            (5, "gpu", "b", "fd00::1".to_owned(), Some(8001)),
        ];
        assert_eq!(seen, expected);
        let labels: Vec<_> = found[1].entry.labels.iter().collect();
        assert_eq!(labels, [(&"b".into(), &"true".into()), (&"x".into(), &"1".into())]);
        assert_eq!(parse("endpoints: []").unwrap(), []);
    }

    #[test]
    fn each_fault_names_its_line() {
        let entry = |fields: &str| format!("endpoints:\n- name: a\n{fields}");
        let many: String = (0..65).map(|n| format!("k{n}: v, ")).collect();
        let cases = [
            (entry("  address: host.local\n  port: 1\n"), 3, "`address` is `host.local`"),
            (entry("  address: 0.0.0.0\n  port: 1\n"), 3, "`address` is `0.0.0.0`"),
            (entry("  address: 10.0.0.1\n  port: 0\n"), 4, "`port` is `0`"),
            (entry("  address: 10.0.0.1\n  port: 65536\n"), 4, "`port` is `65536`"),
            (entry("  address: 10.0.0.1\n  port: http\n"), 4, "`port` is `http`"),
            (entry("  adress: 10.0.0.1\n"), 3, "did you mean `address`?"),
            (
                entry(&format!(
                    "  address: 10.0.0.1\n  port: 1\n  labels: {{k: {}}}\n",
                    "v".repeat(8192)
                )),
                2,
                "`labels` is `1 labels of 8193 bytes`",
            ),
            (
                entry(&format!("  address: 10.0.0.1\n  port: 1\n  labels: {{{}}}\n", many)),
                2,
                "at most 64 labels",
            ),
            ("endpoints:\n- name: a/b\n  address: 10.0.0.1\n  port: 1\n".into(), 2, "`name` is"),
            ("endpoints:\n- name: a\n  name: b\n".into(), 3, "duplicate"),
            ("endpoints:\n- name: a\n  address: [\n".into(), 3, "correct the YAML"),
            ("endpoints:\n".into(), 1, "correct the YAML"),
        ];
        for (text, line, message) in cases {
            let issues = parse(&text).unwrap_err();
            let shown = issues[0].to_string();
            assert!(shown.contains(message), "{text}\n{shown}");
            assert_eq!(issues[0].line, Some(line), "{text}\n{shown}");
        }
    }

    #[test]
    fn all_bad_entries_are_reported_at_once() {
        let text =
            "endpoints:\n- {name: a, address: x, port: 1}\n- {name: b, address: y, port: 1}\n";
        assert_eq!(parse(text).unwrap_err().len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn a_list_cut_anywhere_is_read_or_refused(cut in 0usize..400) {
            let text = "endpoints:\n- name: a\n  address: 10.0.0.1\n  port: 8000\n  labels: {k: v}\n";
            let _ = parse(text.get(..cut.min(text.len())).unwrap());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-z:\\-\\[\\]{}\"'&*!|>#% \n]{0,120}") {
            let _ = parse(&text);
        }
    }
}
