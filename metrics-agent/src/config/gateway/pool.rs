//! `InferencePool`: endpoints with these labels, on these ports, picked by this picker.
//!
//! Read in its stable shape (`inference.networking.k8s.io/v1`) and in that of `v1alpha2`.

use super::{POOL_GROUPS, ranged};
use crate::config::document::Document;
use crate::config::error::{Issue, Problem};
use crate::config::object::{self, Fault, Head};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Ports of a pool at most (the API's own limit).
const MAX_PORTS: usize = 8;
const A_PORT: &str = "a number from 1 to 65535";
/// Longest name of a pool with its namespace: it becomes the name of a file.
const MAX_FULL_NAME: usize = 200;

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name.
    pub head: Head,
    /// Labels that an endpoint must have.
    pub selector: BTreeMap<String, String>,
    /// One endpoint of each host listens on each of these.
    pub target_ports: Vec<u16>,
    /// `appProtocol: kubernetes.io/h2c`: engines speak HTTP/2.
    pub h2c: bool,
    /// Name of the picker that it wants: names its plugin configuration here.
    pub picker: Option<String>,
    /// `failureMode: FailOpen`.
    pub fail_open: bool,
}

impl PoolSpec {
    /// Whether an endpoint with these labels in this namespace is of the pool.
    #[must_use]
    pub fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.head.namespace == namespace && self.selects_labels(labels)
    }

    /// Whether an endpoint with these labels would be of the pool if it were in its namespace.
    #[must_use]
    pub fn selects_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Stable {
    selector: Selector,
    target_ports: Spanned<Vec<Port>>,
    app_protocol: Option<Spanned<String>>,
    endpoint_picker_ref: Option<PickerRef>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    number: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PickerRef {
    #[serde(rename = "group")]
    _group: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    name: Spanned<String>,
    port: Option<Port>,
    failure_mode: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Alpha {
    selector: BTreeMap<String, String>,
    target_port_number: Spanned<i64>,
    extension_ref: Option<ExtensionRef>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExtensionRef {
    #[serde(rename = "group")]
    _group: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    name: Spanned<String>,
    port_number: Option<Spanned<i64>>,
    failure_mode: Option<Spanned<String>>,
}

/// Reads one document in the stable shape.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<PoolSpec, Issue> {
    let (head, raw) = object::read::<Stable>(document)?;
    stable(head, raw).map_err(|(line, problem)| document.issue(line, problem))
}

/// Reads one document in the alpha shape.
///
/// # Errors
/// Its first fault.
pub fn read_alpha(document: &Document<'_>) -> Result<PoolSpec, Issue> {
    let (head, raw) = object::read::<Alpha>(document)?;
    alpha(head, raw).map_err(|(line, problem)| document.issue(line, problem))
}

fn stable(head: Head, raw: Stable) -> Result<PoolSpec, Fault> {
    let ports = raw.target_ports.value;
    if ports.is_empty() || ports.len() > MAX_PORTS {
        let given = format!("{} ports", ports.len());
        let problem = Problem::bad("targetPorts", &given, "1 to 8 ports");
        return Err((raw.target_ports.referenced.line(), problem));
    }
    let mut target_ports = Vec::with_capacity(ports.len());
    for port in ports {
        let number = port_number("number", &port.number)?;
        if target_ports.contains(&number) {
            let problem = Problem::bad("number", &number.to_string(), "each port once");
            return Err((port.number.referenced.line(), problem));
        }
        target_ports.push(number);
    }
    let h2c = match &raw.app_protocol {
        None => false,
        Some(protocol) => match protocol.value.as_str() {
            "http" => false,
            "kubernetes.io/h2c" => true,
            other => {
                let problem = Problem::bad("appProtocol", other, "`http` or `kubernetes.io/h2c`");
                return Err((protocol.referenced.line(), problem));
            }
        },
    };
    let (picker, fail_open) = match raw.endpoint_picker_ref {
        None => (None, false),
        Some(picker) => {
            picker.port.map(|port| port_number("number", &port.number)).transpose()?;
            (Some(picker.name), fails_open(picker.failure_mode.as_ref())?)
        }
    };
    finish(head, raw.selector.match_labels, target_ports, h2c, picker, fail_open)
}

fn alpha(head: Head, raw: Alpha) -> Result<PoolSpec, Fault> {
    let port = port_number("targetPortNumber", &raw.target_port_number)?;
    let (picker, fail_open) = match raw.extension_ref {
        None => (None, false),
        Some(picker) => {
            picker.port_number.map(|port| port_number("portNumber", &port)).transpose()?;
            (Some(picker.name), fails_open(picker.failure_mode.as_ref())?)
        }
    };
    finish(head, raw.selector, vec![port], false, picker, fail_open)
}

fn finish(
    head: Head,
    selector: BTreeMap<String, String>,
    target_ports: Vec<u16>,
    h2c: bool,
    picker: Option<Spanned<String>>,
    fail_open: bool,
) -> Result<PoolSpec, Fault> {
    let dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let full = head.full_name();
    // Both become an Envoy cluster and a file, joined by a dot.
    if full.len() > MAX_FULL_NAME
        || head.namespace.contains('.')
        || !full.chars().all(|c| dns(c) || c == '/')
    {
        let expected =
            "a name and a namespace of lower-case letters, digits and `-`, 200 bytes together";
        return Err((1, Problem::bad("metadata.name", &full, expected)));
    }
    let picker = picker.map(|name| object::checked_name("name", name)).transpose()?;
    Ok(PoolSpec { head, selector, target_ports, h2c, picker, fail_open })
}

fn port_number(field: &'static str, number: &Spanned<i64>) -> Result<u16, Fault> {
    let number = ranged(field, number, 1..=65_535, A_PORT)?;
    Ok(u16::try_from(number).unwrap_or(u16::MAX))
}

fn fails_open(mode: Option<&Spanned<String>>) -> Result<bool, Fault> {
    match mode.map(|mode| mode.value.as_str()) {
        None | Some("FailClose") => Ok(false),
        Some("FailOpen") => Ok(true),
        Some(other) => {
            let line = mode.map_or(0, |mode| mode.referenced.line());
            Err((line, Problem::bad("failureMode", other, "`FailClose` or `FailOpen`")))
        }
    }
}

/// Whether an object of this group and kind is a pool.
#[must_use]
pub fn is_pool(group: &str, kind: &str) -> bool {
    POOL_GROUPS.contains(&group) && kind == "InferencePool"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const HEAD: &str =
        "apiVersion: x\nkind: InferencePool\nmetadata: {name: p, namespace: n}\nspec:\n";

    fn parse(spec: &str) -> Result<PoolSpec, String> {
        let text = format!("{HEAD}{spec}");
        read(&Document::new(Path::new("p.yaml"), 0, &text)).map_err(|issue| issue.to_string())
    }

    #[test]
    fn the_stable_shape() {
        let spec = "  selector:\n    matchLabels: {app: vllm}\n  targetPorts: [{number: 8000}, {number: 8001}]\n  \
                    appProtocol: kubernetes.io/h2c\n  endpointPickerRef:\n    group: ''\n    kind: Service\n    \
                    name: epp\n    port: {number: 9002}\n    failureMode: FailOpen\n";
        let pool = parse(spec).unwrap();
        assert_eq!(pool.head.full_name(), "n/p");
        assert_eq!((pool.target_ports, pool.h2c, pool.fail_open), (vec![8000, 8001], true, true));
        assert_eq!(pool.picker.as_deref(), Some("epp"));
        let least = parse("  selector: {matchLabels: {}}\n  targetPorts: [{number: 1}]\n").unwrap();
        assert_eq!((least.h2c, least.fail_open, least.picker), (false, false, None));
    }

    #[test]
    fn the_alpha_shape() {
        let text = format!(
            "{HEAD}  selector: {{app: vllm}}\n  targetPortNumber: 8000\n  extensionRef:\n    name: epp\n    failureMode: FailOpen\n"
        );
        let pool = read_alpha(&Document::new(Path::new("p.yaml"), 0, &text)).unwrap();
        assert_eq!((pool.target_ports, pool.picker.as_deref()), (vec![8000], Some("epp")));
        assert!(pool.fail_open && pool.selector["app"] == "vllm");
    }

    #[test]
    fn an_endpoint_is_selected_by_namespace_and_every_label() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        let pool = parse("  selector: {matchLabels: {a: b, c: d}}\n  targetPorts: [{number: 1}]\n")
            .unwrap();
        assert!(pool.selects("n", &labels(&[("a", "b"), ("c", "d"), ("e", "f")])));
        assert!(!pool.selects("m", &labels(&[("a", "b"), ("c", "d")])));
        assert!(!pool.selects("n", &labels(&[("a", "b")])));
        assert!(!pool.selects("n", &labels(&[("a", "b"), ("c", "e")])));
    }

    #[test]
    fn each_fault_names_its_line() {
        let ports = "  targetPorts: [{number: 8000}]\n";
        let labels = "  selector: {matchLabels: {a: b}}\n";
        let cases = [
            (ports.to_owned(), "p.yaml:5: field `selector` is missing"),
            (labels.to_owned(), "p.yaml:5: field `targetPorts` is missing"),
            (
                format!("  selector: {{matchLabel: {{}}}}\n{ports}"),
                "p.yaml:5: unknown field `matchLabel`; did you mean `matchLabels`?",
            ),
            (
                format!("{labels}  targetPorts: []\n"),
                "p.yaml:6: `targetPorts` is `0 ports`; give 1 to 8 ports",
            ),
            (format!("{labels}  targetPorts:\n  - number: 0\n"), "p.yaml:7: `number` is `0`"),
            (
                format!("{labels}  targetPorts:\n  - number: 1\n  - number: 1\n"),
                "p.yaml:8: `number` is `1`; give each port once",
            ),
            (
                format!("{labels}{ports}  appProtocol: grpc\n"),
                "p.yaml:7: `appProtocol` is `grpc`; give `http` or",
            ),
            (
                format!("{labels}{ports}  endpointPickerRef: {{name: e, failureMode: Fail}}\n"),
                "p.yaml:7: `failureMode` is `Fail`",
            ),
            (
                format!("{labels}{ports}  endpointPickerRef: {{}}\n"),
                "p.yaml:7: field `name` is missing",
            ),
            (
                format!("{labels}{ports}  extensionRef: {{}}\n"),
                "p.yaml:7: unknown field `extensionRef`",
            ),
        ];
        for (spec, message) in cases {
            let shown = parse(&spec).unwrap_err();
            assert!(shown.starts_with(message), "{spec}\n{shown}");
        }
        let text = "apiVersion: x\nkind: InferencePool\nmetadata: {name: P_1}\nspec:\n  selector: {matchLabels: {}}\n  targetPorts: [{number: 1}]\n";
        let issue = read(&Document::new(Path::new("p.yaml"), 0, text)).unwrap_err();
        assert!(issue.to_string().contains("lower-case letters"), "{issue}");
    }
}
