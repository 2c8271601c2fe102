//! Configuration: YAML documents of a file or a folder, checked as a whole.
//!
//! Strict: one fault refuses everything that was read with it, and the configuration in force
//! stays ([`watch`]). `check-config` prints what [`Configuration`] understood.

mod builder;
pub mod config_map;
pub mod document;
pub mod error;
pub mod file_discovery;
pub mod gateway;
pub mod kind;
pub mod kv_events;
pub mod list;
pub mod model;
pub mod model_mapping;
pub mod object;
pub mod objects;
pub mod picker;
pub mod placement;
pub mod resolve;
pub mod source;
pub mod tenant;
pub mod tree;
pub mod watch;

use crate::scrape::plan::{ScrapePlan, ScrapePlans};
use builder::Builder;
use error::Issue;
use file_discovery::EndpointSpec;
use kv_events::KvEventsSpec;
use model::ModelSpec;
use objects::Objects;
use picker::PickerSpec;
use source::Source;
use std::path::Path;
use warmroute_shared_state::policy::Policy;

/// Endpoints of all lists together.
pub const MAX_ENDPOINTS: usize = 4096;

/// Everything that the files say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configuration {
    /// Endpoints, in the order of the files.
    pub endpoints: Vec<EndpointSpec>,
    /// How many files were read.
    pub files: usize,
    /// How many lists of endpoints there were.
    pub endpoint_lists: usize,
    /// Whose KV cache events are followed, and how: by documents, no two of which select the same endpoint, then by
    /// pickers' configurations.
    pub kv_events: Vec<KvEventsSpec>,
    /// How many of them are documents.
    pub kv_events_documents: usize,
    /// Models that are told byte for byte. No two share a name, alias or adapter.
    pub models: Vec<ModelSpec>,
    /// All other objects, as they were read.
    pub objects: Objects,
    /// What they come to for the filter; the clusters' names are set by [`Configuration::policy`].
    pub unnamed_policy: Policy,
    /// The pickers' configurations in force: one for each of the policy's schedulers.
    pub pickers: Vec<PickerSpec>,
    /// What was passed over, and what is strange.
    pub warnings: Vec<Issue>,
}

impl Configuration {
    /// Reads a file or a folder.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn load(root: &Path) -> Result<Self, Vec<Issue>> {
        Self::from_sources(root, &source::read(root)?)
    }

    /// Checks what was read from `root`.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn from_sources(root: &Path, sources: &[Source]) -> Result<Self, Vec<Issue>> {
        let mut builder = Builder::default();
        for source in sources {
            builder.add(source);
        }
        builder.finish(root, sources.len())
    }

    /// The policy for the filter of an Envoy whose cluster of all endpoints is `cluster`.
    #[must_use]
    pub fn policy(&self, cluster: &str) -> Policy {
        let mut policy = self.unnamed_policy.clone();
        resolve::name_clusters(&mut policy, &self.objects.pools, cluster);
        policy
    }

    /// How an endpoint is scraped: as the picker of its first pool says.
    #[must_use]
    pub fn scrape_plan(&self, endpoint: &EndpointSpec) -> ScrapePlan {
        let pool = endpoint.pools.first();
        let pool =
            pool.and_then(|name| self.unnamed_policy.pools.iter().find(|pool| pool.name == *name));
        let picker = self.pickers.get(pool.map_or(0, |pool| pool.scheduler));
        match picker {
            Some(picker) => picker.scrapes.of(&endpoint.labels),
            None => ScrapePlans::default().of(&endpoint.labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    fn load(sources: &[Source]) -> Result<Configuration, Vec<String>> {
        Configuration::from_sources(Path::new("conf"), sources)
            .map_err(|issues| issues.iter().map(ToString::to_string).collect())
    }

    const A: &str = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80}\n";

    #[test]
    fn lists_of_several_files_and_documents_are_joined() {
        let b = "# b\n---\nendpoints:\n- {name: b, address: 10.0.0.2, port: 80}\n---\n\
                 apiVersion: v1\nkind: Service\n";
        let all = load(&[source("a.yaml", A), source("b.yaml", b)]).unwrap();
        let names: Vec<_> = all.endpoints.iter().map(EndpointSpec::full_name).collect();
        assert_eq!(names, ["default/a", "default/b"]);
        assert_eq!((all.files, all.endpoint_lists, all.warnings.len()), (2, 2, 1));
        assert_eq!(all.warnings[0].line, Some(7));
    }

    #[test]
    fn a_name_or_address_given_twice_is_refused_with_both_places() {
        let again = "endpoints:\n- {name: a, address: 10.0.0.2, port: 80}\n\
                     - {name: c, address: 10.0.0.1, port: 80}\n";
        let issues = load(&[source("a.yaml", A), source("b.yaml", again)]).unwrap_err();
        assert_eq!(issues.len(), 2);
        assert!(issues[0].starts_with("b.yaml:2: name `default/a` is already used at a.yaml:2"));
        assert!(issues[1].starts_with("b.yaml:3: address `10.0.0.1:80` is already used at a.yaml"));
    }

    #[test]
    fn nothing_is_not_an_empty_pool() {
        for text in ["", "\n# soon\n", "---\n"] {
            assert!(load(&[source("a.yaml", text)]).unwrap_err()[0].contains("is empty"));
        }
        assert!(load(&[]).unwrap_err()[0].contains("no endpoint list"));
        assert_eq!(load(&[source("a.yaml", "endpoints: []")]).unwrap().endpoints, []);
    }

    #[test]
    fn an_endpoint_has_one_source_of_events() {
        let kv = |labels: &str| format!("kind: KVEvents\nendpointLabels: {labels}\n");
        let list = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80, labels: {x: y}}\n";
        let all = |first: &str, second: &str| {
            let documents = format!("{}---\n{}", kv(first), kv(second));
            load(&[source("a.yaml", list), source("kv.yaml", &documents)])
        };
        assert_eq!(all("{x: y}", "{x: z}").unwrap().kv_events.len(), 2);
        let issues = all("{}", "{x: y}").unwrap_err();
        let expected = "kv.yaml:4: selects endpoint `default/a`, which kv.yaml:1 selects too";
        assert!(issues[0].starts_with(expected), "{issues:?}");
        let bad = "endpoints:\n- {name: a, address: 10.0.0.1, port: 80, \
                   labels: {warmroute/kv-events-port: x}}\n";
        let issues = load(&[source("a.yaml", bad)]).unwrap_err();
        assert!(issues[0].starts_with("a.yaml:2: `warmroute/kv-events-port` is `x`"), "{issues:?}");
    }

    #[test]
    fn a_models_names_are_its_own() {
        let models = "kind: Model\nname: m\nfolder: f\naliases: [n]\n---\nkind: Model\n\
                      name: o\nfolder: f\nadapters:\n- n\n- m\n";
        let issues = load(&[source("a.yaml", A), source("m.yaml", models)]).unwrap_err();
        let expected = [
            "m.yaml:10: model name `n` is already used at m.yaml:4; remove one of the two",
            "m.yaml:11: model name `m` is already used at m.yaml:2; remove one of the two",
        ];
        assert_eq!(issues, expected);
        let one = "kind: Model\nname: m\nfolder: nowhere\n";
        let all = load(&[source("a.yaml", A), source("c/m.yaml", one)]).unwrap();
        assert_eq!(all.models[0].folder, Path::new("c/nowhere"));
    }

    #[test]
    fn a_picker_in_a_config_map_may_be_json_or_quoted_and_a_document_may_begin_on_its_marker() {
        for text in [
            r#"{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"queue-scorer"}]}"#,
            "\"kind\": EndpointPickerConfig\napiVersion: llm-d.ai/v1alpha1\nplugins: [{type: queue-scorer}]",
        ] {
            let text = text.replace('\n', "\n    ");
            let map = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  x.yaml: |\n    {text}\n"
            );
            let all = load(&[source("a.yaml", A), source("c.yaml", &map)]).unwrap();
            assert_eq!(all.pickers.len(), 1, "{text}");
        }
        let inline = "# first\n--- {apiVersion: llm-d.ai/v1alpha2, kind: InferenceObjective, \
                      metadata: {name: o}, spec: {priority: 3, poolRef: {name: p}}}\n";
        let all = load(&[source("a.yaml", A), source("o.yaml", inline)]).unwrap();
        assert_eq!(all.objects.objectives.len(), 1);
    }

    #[test]
    fn a_tenants_name_is_its_own_in_all_namespaces() {
        let quota = |namespace: &str, digit: char| {
            format!(
                "apiVersion: mini-platform.local/v1alpha1\nkind: TenantQuota\nmetadata: {{name: t, namespace: {namespace}}}\n\
                 spec:\n  identity: {{apiKeyHashes: [\"{}\"]}}\n  inject: {{fairnessId: t}}\n  limits: [{{model: \"*\", rpm: 5}}]\n",
                digit.to_string().repeat(64)
            )
        };
        for namespace in ["x", "y"] {
            let both = [
                source("a.yaml", A),
                source("b.yaml", &quota("x", 'a')),
                source("c.yaml", &quota(namespace, 'b')),
            ];
            let issues = load(&both).unwrap_err();
            let once = matches!(issues.as_slice(), [issue] if issue.contains("tenant `t` is already used at b.yaml"));
            assert!(once, "{issues:?}");
        }
    }

    #[test]
    fn one_bad_file_refuses_the_whole() {
        let issues = load(&[source("a.yaml", A), source("b.yaml", "endpoints: [{name: b}]")]);
        assert!(issues.unwrap_err()[0].starts_with("b.yaml:1: field `address` is missing"));
    }

    const OBJECTS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  x: |\n    apiVersion: llm-d.ai/v1alpha1\n    \
        kind: EndpointPickerConfig\n    plugins:\n    - type: utilization-filter\n      parameters: {conditions: [{metric: \
        waiting-queue, maxValue: 4}]}\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: gateway.networking.k8s.io/v1\n  \
        kind: HTTPRoute\n  metadata: {name: r}\n  spec:\n    rules:\n    - matches: [{path: {value: /é}}]\n";

    #[test]
    fn nesting_without_end_is_refused() {
        for depth in [100, 1000, 100_000] {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let text = format!(
                "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{{type: queue-scorer, parameters: {nested}}}]\n"
            );
            let issues = load(&[source("a.yaml", &text)]).unwrap_err();
            assert!(issues[0].starts_with("a.yaml:3:"), "{issues:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn objects_cut_anywhere_are_read_or_refused(cut in 0usize..600, text in "[a-z:|>\\-\\[\\]{} \n]{0,20}") {
            let cut = (0..=cut.min(OBJECTS.len())).rev().find(|at| OBJECTS.is_char_boundary(*at)).unwrap();
            let (before, after) = OBJECTS.split_at(cut);
            for document in [format!("{before}{text}"), format!("{before}{text}{after}")] {
                let _ = load(&[source("a.yaml", &document)]);
            }
        }
    }
}
