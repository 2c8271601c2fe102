//! What a document is about: the kinds that are read, by name and API version.

use super::error::{Problem, did_you_mean, nearest};

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// llm-d's file-discovery list: `endpoints:` at the top, without `kind`.
    EndpointList,
    /// Whose KV cache events are followed.
    KvEvents,
    /// A model that is told byte for byte.
    Model,
    /// How endpoints are picked.
    EndpointPickerConfig,
    /// A group of endpoints.
    InferencePool,
    /// The same, in the shape of its alpha version.
    InferencePoolAlpha,
    /// A named priority.
    InferenceObjective,
    /// What a model name becomes.
    InferenceModelRewrite,
    /// Which pool a request goes to.
    HttpRoute,
    /// Text by key: a picker's configuration or a model mapping.
    ConfigMap,
    /// A tenant: who it is and what it may use.
    TenantQuota,
    /// Objects in one document, as `kubectl get -o yaml` prints them.
    List,
}

const OWN: &[&str] = &["warmroute/v1alpha1"];
const GIE_ALPHA: &str = "inference.networking.x-k8s.io/v1alpha2";

/// Kinds by name, with the API versions that they are read in; [`OWN`] may be left out.
const KINDS: &[(&str, Kind, &[&str])] = &[
    ("EndpointList", Kind::EndpointList, OWN),
    ("KVEvents", Kind::KvEvents, OWN),
    ("Model", Kind::Model, OWN),
    (
        "EndpointPickerConfig",
        Kind::EndpointPickerConfig,
        &["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"],
    ),
    ("InferencePool", Kind::InferencePool, &["inference.networking.k8s.io/v1"]),
    ("InferencePool", Kind::InferencePoolAlpha, &[GIE_ALPHA]),
    ("InferenceObjective", Kind::InferenceObjective, &["llm-d.ai/v1alpha2", GIE_ALPHA]),
    ("InferenceModelRewrite", Kind::InferenceModelRewrite, &["llm-d.ai/v1alpha2", GIE_ALPHA]),
    (
        "HTTPRoute",
        Kind::HttpRoute,
        &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1"],
    ),
    ("ConfigMap", Kind::ConfigMap, &["v1"]),
    ("TenantQuota", Kind::TenantQuota, &["mini-platform.local/v1alpha1", "warmroute/v1alpha1"]),
    ("List", Kind::List, &["v1"]),
];

/// Groups whose unknown kinds are a mistake, not somebody else's object.
const OUR_GROUPS: &[&str] = &[
    "warmroute",
    "llm-d.ai",
    "inference.networking.k8s.io",
    "inference.networking.x-k8s.io",
    "mini-platform.local",
];

/// Kinds of these groups that exist and say nothing to the agent.
const PASSED_OVER: &[&str] = &["InferenceModel", "InferencePoolImport"];

/// Finds the kind of a document with this `kind` and `apiVersion`.
///
/// # Errors
/// If it is not read: [`Problem::ForeignKind`] is a warning.
pub(super) fn find(kind: &str, api_version: Option<&str>) -> Result<Kind, Problem> {
    let rows = KINDS.iter().filter(|(name, ..)| *name == kind);
    let version = api_version.unwrap_or_default();
    if let Some((_, found, _)) = rows.clone().find(|(.., versions)| {
        versions.contains(&version) || (version.is_empty() && *versions == OWN)
    }) {
        return Ok(*found);
    }
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let versions: Vec<&str> = rows.clone().flat_map(|(.., versions)| *versions).copied().collect();
    let same_group = |known: &&str| known.rsplit_once('/').map_or("", |(group, _)| group) == group;
    if !versions.is_empty() && (version.is_empty() || versions.iter().any(same_group)) {
        let advice = did_you_mean(version, &versions);
        return Err(Problem::unknown("apiVersion", version, advice));
    }
    let ours = version.is_empty() || OUR_GROUPS.contains(&group);
    // `Model` is a kind of others too.
    if !versions.is_empty() && !ours || PASSED_OVER.contains(&kind) {
        return Err(Problem::ForeignKind(kind.to_owned()));
    }
    let of_group =
        KINDS.iter().filter(|(.., versions)| version.is_empty() || versions.iter().any(same_group));
    let mut names: Vec<&str> = of_group.map(|(name, ..)| *name).collect();
    names.dedup();
    // Of Gateway API and of Kubernetes itself only single kinds are read, and others have similar names
    // (TCPRoute): only letters that changed places, or one for another, are taken as a slip.
    if ours || nearest(kind, &names).is_some_and(|name| name.len() == kind.len()) {
        let advice = did_you_mean(kind, &names);
        return Err(Problem::UnknownKind { kind: kind.to_owned(), advice });
    }
    Err(Problem::ForeignKind(kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_by_name_and_version() {
        let cases = [
            ("InferencePool", "inference.networking.k8s.io/v1", Kind::InferencePool),
            ("InferencePool", "inference.networking.x-k8s.io/v1alpha2", Kind::InferencePoolAlpha),
            ("EndpointPickerConfig", "llm-d.ai/v1alpha1", Kind::EndpointPickerConfig),
            (
                "EndpointPickerConfig",
                "inference.networking.x-k8s.io/v1alpha1",
                Kind::EndpointPickerConfig,
            ),
            ("HTTPRoute", "gateway.networking.k8s.io/v1", Kind::HttpRoute),
            ("Model", "warmroute/v1alpha1", Kind::Model),
            ("Model", "", Kind::Model),
        ];
        for (kind, version, expected) in cases {
            assert_eq!(find(kind, Some(version)), Ok(expected), "{kind} {version}");
        }
    }

    #[test]
    fn a_slip_is_refused_and_a_stranger_passed_over() {
        let refused = [
            (
                "InferencePool",
                "inference.networking.k8s.io/v2",
                "did you mean `inference.networking.k8s.io/v1`?",
            ),
            ("InferencePool", "", "apiVersion"),
            ("InferencPool", "inference.networking.k8s.io/v1", "did you mean `InferencePool`?"),
            ("TenantQota", "mini-platform.local/v1alpha1", "did you mean `TenantQuota`?"),
            ("EndpointLists", "", "did you mean `EndpointList`?"),
            ("HTTPRuote", "gateway.networking.k8s.io/v1", "did you mean `HTTPRoute`?"),
            (
                "Nothing",
                "llm-d.ai/v1alpha2",
                "valid here: EndpointPickerConfig, InferenceObjective",
            ),
        ];
        for (kind, version, message) in refused {
            let problem = find(kind, Some(version)).unwrap_err();
            assert!(!matches!(problem, Problem::ForeignKind(_)), "{kind} {version}");
            assert!(problem.to_string().contains(message), "{kind} {version}: {problem}");
        }
        let foreign = [
            ("Deployment", "apps/v1"),
            ("Service", "v1"),
            ("Gateway", "gateway.networking.k8s.io/v1"),
            ("GRPCRoute", "gateway.networking.k8s.io/v1"),
            ("Model", "kubeai.org/v1"),
            ("InferencePoolImport", "inference.networking.x-k8s.io/v1alpha1"),
        ];
        for (kind, version) in foreign {
            let found = find(kind, Some(version));
            assert_eq!(found, Err(Problem::ForeignKind(kind.into())), "{kind} {version}");
        }
    }
}
