//! Kind `KVEvents`: whose KV cache events are followed, and where they come from.
//!
//! ```yaml
//! apiVersion: warmroute/v1alpha1
//! kind: KVEvents
//! discover: true              # ask engines where they publish (GET /kv_event_sources)
//! port: 5557                  # else: rank r publishes on port + r …
//! replayPort: 5657            # … and answers replays on replayPort + r
//! ranks: 1                    # data-parallel ranks behind one endpoint
//! topicFilter: "kv@"          # what topics begin with; "" takes all
//! model: Qwen/Qwen3-8B        # if topics don't name it
//! lowerTierPercent: 80        # worth of a block in a slower tier (CPU, storage)
//! endpointLabels: {pool: a}   # whose; all endpoints if left out
//! ```
//!
//! All fields may be left out, or stand under `spec:`. An endpoint's own labels
//! [`PORT_LABEL`] and [`REPLAY_PORT_LABEL`] go before all of this.

use super::document::Document;
use super::error::{Issue, Problem};
use super::file_discovery::EndpointSpec;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Label of an endpoint: port of its event publisher (of rank 0).
pub const PORT_LABEL: &str = "warmroute/kv-events-port";
/// Label of an endpoint: port of its replays (of rank 0).
pub const REPLAY_PORT_LABEL: &str = "warmroute/kv-replay-port";
/// Data-parallel ranks of an endpoint at most.
pub const MAX_RANKS: u16 = 64;

const DEFAULT_TOPIC_FILTER: &str = "kv@";
/// The worth that llm-d gives a block in CPU memory.
const DEFAULT_LOWER_TIER_PERCENT: u8 = 80;
const A_PORT: &str = "a number from 1 to 65535";

/// Ports of an endpoint's publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Of rank 0's live stream; rank r has this + r.
    pub live: u16,
    /// Of rank 0's replays, if it answers any; rank r has this + r.
    pub replay: Option<u16>,
    /// How many ranks there are.
    pub ranks: u16,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsSpec {
    /// Whether engines are asked where they publish.
    pub discover: bool,
    /// Where they publish if they are not asked or do not know.
    pub ports: Option<Ports>,
    /// What topics begin with.
    pub topic_filter: String,
    /// The model whose events these are, if topics don't name it.
    pub model: Option<String>,
    /// Worth of a block in a slower tier, in percent of one in the device.
    pub lower_tier_percent: u8,
    /// Labels that an endpoint must have.
    pub endpoint_labels: BTreeMap<String, String>,
    /// Namespace that it must be in: that of a pool of the picker that says this. `None` in documents.
    pub namespace: Option<String>,
}

impl Default for KvEventsSpec {
    fn default() -> Self {
        Self {
            discover: true,
            ports: None,
            topic_filter: DEFAULT_TOPIC_FILTER.into(),
            model: None,
            lower_tier_percent: DEFAULT_LOWER_TIER_PERCENT,
            endpoint_labels: BTreeMap::new(),
            namespace: None,
        }
    }
}

impl KvEventsSpec {
    /// Whether it is about this endpoint.
    #[must_use]
    pub fn selects(&self, endpoint: &EndpointSpec) -> bool {
        let mut labels = self.endpoint_labels.iter();
        self.namespace.as_ref().is_none_or(|namespace| *namespace == endpoint.namespace)
            && labels.all(|(key, value)| endpoint.labels.get(key) == Some(value))
    }
}

/// How an endpoint's events are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether the engine is asked first.
    pub discover: bool,
    /// Where its publishers are otherwise.
    pub ports: Option<Ports>,
    /// What topics begin with.
    pub topic_filter: String,
    /// The model, if topics don't name it.
    pub model: Option<String>,
    /// Worth of a block in a slower tier, in percent.
    pub lower_tier_percent: u8,
}

impl Plan {
    /// The plan for an endpoint, if its events are followed at all.
    #[must_use]
    pub fn of(endpoint: &EndpointSpec, documents: &[KvEventsSpec]) -> Option<Self> {
        let document = documents.iter().find(|document| document.selects(endpoint));
        // Bad labels are refused with the configuration.
        let own = label_ports(&endpoint.labels).ok().flatten();
        if document.is_none() && own.is_none() {
            return None;
        }
        let document = document.cloned().unwrap_or_default();
        let ranks = document.ports.map_or(1, |ports| ports.ranks);
        Some(Self {
            discover: document.discover && own.is_none(),
            ports: own.map(|own| Ports { ranks, ..own }).or(document.ports),
            topic_filter: document.topic_filter,
            model: document.model,
            lower_tier_percent: document.lower_tier_percent,
        })
    }
}

/// The ports that an endpoint's labels give, for one rank.
///
/// # Errors
/// If one of them is no port, or there is only the one for replays.
pub fn label_ports(labels: &BTreeMap<String, String>) -> Result<Option<Ports>, Problem> {
    let port = |label: &'static str| match labels.get(label) {
        None => Ok(None),
        Some(text) => match text.parse().ok().filter(|port| *port > 0) {
            Some(port) => Ok(Some(port)),
            None => Err(bad(label, text, A_PORT)),
        },
    };
    match (port(PORT_LABEL)?, port(REPLAY_PORT_LABEL)?) {
        (Some(live), replay) => Ok(Some(Ports { live, replay, ranks: 1 })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::MissingField(PORT_LABEL)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Wrapped {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    spec: Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    discover: Option<bool>,
    port: Option<Spanned<String>>,
    replay_port: Option<Spanned<String>>,
    ranks: Option<Spanned<String>>,
    topic_filter: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    lower_tier_percent: Option<Spanned<String>>,
    #[serde(default)]
    endpoint_labels: BTreeMap<String, String>,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<KvEventsSpec, Issue> {
    let raw = if document.has_key("spec") {
        document.parse::<Wrapped>()?.spec
    } else {
        document.parse::<Raw>()?
    };
    compile(raw).map_err(|(line, problem)| document.issue(line, problem))
}

type Fault = (u64, Problem);

fn compile(raw: Raw) -> Result<KvEventsSpec, Fault> {
    let ranks = match &raw.ranks {
        None => 1,
        Some(ranks) => number(ranks, "ranks", 1..=MAX_RANKS, "a number from 1 to 64")?,
    };
    // The highest rank's port has to be one too.
    let port = |port: Option<&Spanned<String>>, field| {
        let highest = u16::MAX.saturating_sub(ranks.saturating_sub(1));
        let expected = "a number from 1 to 65535, less the further ranks";
        port.map(|port| number(port, field, 1..=highest, expected)).transpose()
    };
    let live = port(raw.port.as_ref(), "port")?;
    let replay = port(raw.replay_port.as_ref(), "replayPort")?;
    let discover = raw.discover.unwrap_or(true);
    let ports = match (live, &raw.replay_port) {
        (Some(live), _) => Some(Ports { live, replay, ranks }),
        (None, Some(replay)) => {
            return Err((replay.referenced.line(), Problem::MissingField("port")));
        }
        (None, None) if !discover => return Err((1, Problem::MissingField("port"))),
        (None, None) => None,
    };
    let topic_filter = match raw.topic_filter {
        Some(filter) if filter.value.len() > 255 => {
            let problem = bad("topicFilter", &filter.value, "at most 255 bytes");
            return Err((filter.referenced.line(), problem));
        }
        Some(filter) => filter.value,
        None => DEFAULT_TOPIC_FILTER.into(),
    };
    let model = match raw.model {
        Some(model) if model.value.is_empty() => {
            let problem = bad("model", "", "a model's name, or leave it out");
            return Err((model.referenced.line(), problem));
        }
        model => model.map(|model| model.value),
    };
    let lower_tier_percent = match &raw.lower_tier_percent {
        None => DEFAULT_LOWER_TIER_PERCENT,
        Some(percent) => {
            let percent = number(percent, "lowerTierPercent", 0..=100, "a number from 0 to 100")?;
            u8::try_from(percent).unwrap_or(100)
        }
    };
    let endpoint_labels = raw.endpoint_labels;
    Ok(KvEventsSpec {
        discover,
        ports,
        topic_filter,
        model,
        lower_tier_percent,
        endpoint_labels,
        namespace: None,
    })
}

fn number(
    text: &Spanned<String>,
    field: &'static str,
    range: std::ops::RangeInclusive<u16>,
    expected: &'static str,
) -> Result<u16, Fault> {
    let number = text.value.trim().parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| (text.referenced.line(), bad(field, &text.value, expected)))
}

fn bad(field: &'static str, value: &str, expected: &'static str) -> Problem {
    Problem::BadValue { field, value: value.chars().take(80).collect(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<KvEventsSpec, Issue> {
        read(&Document::new(Path::new("kv.yaml"), 0, text))
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn all_fields_flat_or_under_spec() {
        let flat = "apiVersion: warmroute/v1alpha1\nkind: KVEvents\ndiscover: false\nport: 5557\n\
                    replayPort: \"5657\"\nranks: 2\ntopicFilter: \"\"\nmodel: m\n\
                    lowerTierPercent: 50\nendpointLabels: {pool: a}\n";
        let expected = KvEventsSpec {
            discover: false,
            ports: Some(Ports { live: 5557, replay: Some(5657), ranks: 2 }),
            topic_filter: String::new(),
            model: Some("m".into()),
            lower_tier_percent: 50,
            endpoint_labels: labels(&[("pool", "a")]),
            namespace: None,
        };
        assert_eq!(parse(flat).unwrap(), expected);
        let (head, fields) = flat.split_at(flat.find("discover").unwrap());
        let indented: String = fields.lines().map(|line| format!("  {line}\n")).collect();
        let wrapped = format!("{head}metadata: {{name: x}}\nspec:\n{indented}");
        assert_eq!(parse(&wrapped).unwrap(), expected);
        assert_eq!(parse("kind: KVEvents\n").unwrap(), KvEventsSpec::default());
        assert_eq!(parse("kind: KVEvents\nspec: {}\n").unwrap(), KvEventsSpec::default());
    }

    #[test]
    fn each_fault_names_its_line() {
        let cases = [
            ("prot: 1", 2, "did you mean `port`?"),
            ("spec:\n  replayport: 1", 3, "did you mean `replayPort`?"),
            ("port: 0", 2, "`port` is `0`"),
            ("port: 70000", 2, "`port` is `70000`"),
            ("ranks: 3\nport: 65534", 3, "`port` is `65534`"),
            ("ranks: 65", 2, "`ranks` is `65`"),
            ("replayPort: 5", 2, "field `port` is missing"),
            ("discover: false", 1, "field `port` is missing"),
            ("discover: maybe", 2, "correct the YAML"),
            ("model: ''", 2, "`model` is ``"),
            ("lowerTierPercent: 101", 2, "`lowerTierPercent` is `101`"),
        ];
        for (fields, line, message) in cases {
            let issue = parse(&format!("kind: KVEvents\n{fields}\n")).unwrap_err();
            let shown = issue.to_string();
            assert!(shown.contains(message), "{fields}\n{shown}");
            assert_eq!(issue.line, Some(line), "{fields}\n{shown}");
        }
        let long = format!("kind: KVEvents\ntopicFilter: {}\n", "t".repeat(256));
        assert!(parse(&long).unwrap_err().to_string().contains("at most 255 bytes"));
    }

    #[test]
    fn an_endpoint_is_followed_by_its_labels_or_the_document_that_selects_it() {
        let endpoint = |pairs: &[(&str, &str)]| EndpointSpec {
            namespace: "n".into(),
            name: "e".into(),
            address: "10.0.0.1:8000".parse().unwrap(),
            labels: labels(pairs),
            pools: Vec::new(),
        };
        let ports = Some(Ports { live: 5557, replay: None, ranks: 2 });
        let endpoint_labels = labels(&[("pool", "a")]);
        let only = [KvEventsSpec { ports, endpoint_labels, ..KvEventsSpec::default() }];
        assert_eq!(Plan::of(&endpoint(&[]), &only), None);
        assert_eq!(Plan::of(&endpoint(&[("pool", "b")]), &only), None);
        let plan = Plan::of(&endpoint(&[("pool", "a")]), &only).unwrap();
        assert_eq!((plan.discover, plan.ports), (true, ports));
        let own = [(PORT_LABEL, "6000"), (REPLAY_PORT_LABEL, "6100")];
        let plan = Plan::of(&endpoint(&own), &only).unwrap();
        let expected = Ports { live: 6000, replay: Some(6100), ranks: 1 };
        assert_eq!((plan.discover, plan.ports), (false, Some(expected)));
        let plan = Plan::of(&endpoint(&[("pool", "a"), own[0]]), &only).unwrap();
        assert_eq!(plan.ports, Some(Ports { live: 6000, replay: None, ranks: 2 }));
        assert_eq!(Plan::of(&endpoint(&[]), &[]), None);
    }

    #[test]
    fn bad_labels_are_found() {
        let ports = |pairs: &[(&str, &str)]| label_ports(&labels(pairs));
        assert_eq!(ports(&[("a", "b")]), Ok(None));
        assert!(ports(&[(PORT_LABEL, "x")]).is_err());
        assert!(ports(&[(PORT_LABEL, "0")]).is_err());
        assert!(ports(&[(PORT_LABEL, "1"), (REPLAY_PORT_LABEL, "")]).is_err());
        assert_eq!(ports(&[(REPLAY_PORT_LABEL, "1")]), Err(Problem::MissingField(PORT_LABEL)));
    }
}
