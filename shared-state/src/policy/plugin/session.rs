//! What keeps a session at its endpoint.

use super::parameters::Parameters;
use super::{Kind, PluginError, References};
use serde::{Deserialize, Serialize};

/// Parameters of `session-affinity-filter` and `session-affinity-scorer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAffinity {
    /// How a session's endpoint is known.
    pub strategy: SessionStrategy,
    /// The profile whose pick is the session's endpoint; `None`: the primary one.
    pub profile: Option<String>,
}

/// How a session's endpoint is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionStrategy {
    /// `encoded_endpoint_header` (the default): the client sends it back: base64 of the endpoint's `namespace/name`.
    EncodedEndpoint {
        /// In lower case. Default: `x-session-token`.
        header: String,
    },
    /// `session_id`: the endpoint of each session is remembered.
    SessionId {
        /// The first that gives an id counts. Default: the header `x-session-id`.
        sources: Vec<SessionSource>,
        /// How long an unused session is remembered, in ms. Default: 300,000.
        ttl_ms: u64,
    },
}

/// Where a session's id is read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionSource {
    /// A request header, in lower case.
    Header(String),
    /// What `agent-identity` or a `session-id-producer` found.
    Attribute {
        /// `agent-identity`, or any name of a session-id-producer's.
        attribute: String,
        /// Name of the producer's instance, by default that of its type; empty for `agent-identity`.
        producer: String,
    },
}

/// Parameters of `session-id-producer`: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionId {
    /// A request header, in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// Parameters of `agent-identity`: the first header that is there names the agent; in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentIdentity {
    /// Those configured, then llm-d's own.
    pub headers: Vec<String>,
}

const MAX_TTL_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

pub(super) fn session_affinity(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<SessionAffinity, PluginError> {
    let encoded = p.object("encodedEndpointHeaderConfig", &["header"])?;
    let by_id =
        p.object("sessionIdConfig", &["sources", "evictionTtlSeconds", "evictionSweepSeconds"])?;
    let strategies = [("encoded_endpoint_header", false), ("session_id", true)];
    let profile = p.text("profileName")?.map(str::to_owned);
    let strategy = if p.one_of("strategy", Some(false), &strategies)? {
        session_id_strategy(&by_id, references)?
    } else {
        let header = encoded.text("header")?.unwrap_or("x-session-token").to_lowercase();
        SessionStrategy::EncodedEndpoint { header }
    };
    Ok(SessionAffinity { strategy, profile })
}

fn session_id_strategy(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<SessionStrategy, PluginError> {
    let given = p.objects("sources", &["header", "attribute", "producer"])?;
    let mut sources = given
        .iter()
        .map(|source| match (source.text("header")?, source.text("attribute")?) {
            (Some(header), None) => Ok(SessionSource::Header(header.to_lowercase())),
            (None, Some(attribute)) => Ok(SessionSource::Attribute {
                attribute: attribute.to_owned(),
                producer: producer(source, attribute, references)?,
            }),
            _ => Err(source.refuse("header", "a name here or in `attribute`, not in both")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if sources.is_empty() {
        sources.push(SessionSource::Header("x-session-id".into()));
    }
    let right = |n: f64| (0.0..=MAX_TTL_SECONDS).contains(&n);
    let what = "seconds, above 0 and at most a year";
    // 0 stands for the default.
    let seconds = |name, default| {
        let seconds = p.number_that(name, default, what, right)?;
        Ok(if seconds > 0.0 { seconds } else { default })
    };
    seconds("evictionSweepSeconds", 10.0)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let ttl_ms = (seconds("evictionTtlSeconds", 300.0)? * 1000.0) as u64;
    Ok(SessionStrategy::SessionId { sources, ttl_ms })
}

/// The producer of a source's attribute. It must be there: else no session would be known.
fn producer(
    source: &Parameters<'_>,
    attribute: &str,
    references: &mut References,
) -> Result<String, PluginError> {
    let given = source.text("producer")?;
    if given.is_none() && attribute == "agent-identity" {
        references.add_name(&source.path("attribute"), attribute, Kind::AgentIdentity);
        return Ok(String::new());
    }
    let at = source.path(if given.is_some() { "producer" } else { "attribute" });
    let name = given.unwrap_or("session-id-producer");
    references.add_name(&at, name, Kind::SessionId);
    Ok(name.to_owned())
}

pub(super) fn session_id(p: &Parameters<'_>) -> Result<SessionId, PluginError> {
    let trimmed = |name| Ok(p.text(name)?.map(str::trim).filter(|name| !name.is_empty()));
    match (trimmed("headerName")?, trimmed("cookieName")?) {
        (Some(header), None) => Ok(SessionId::Header(header.to_lowercase())),
        (None, Some(cookie)) => Ok(SessionId::Cookie(cookie.to_owned())),
        _ => Err(p.refuse("headerName", "a name here or in `cookieName`, not in both")),
    }
}

pub(super) fn agent_identity(p: &Parameters<'_>) -> Result<AgentIdentity, PluginError> {
    let own = p.texts("additionalSessionHeaders")?;
    let known = ["x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"];
    let headers = own.iter().map(String::as_str).chain(known).filter(|name| !name.is_empty());
    Ok(AgentIdentity { headers: headers.map(str::to_lowercase).collect() })
}
