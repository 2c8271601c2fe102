//! Gathers the documents of all files, then checks them together.

use super::config_map::{self, Content};
use super::document::Document;
use super::error::{Issue, Problem};
use super::file_discovery::{EndpointSpec, Located};
use super::gateway::{objective, pool, rewrite, route};
use super::kind::Kind;
use super::kv_events::KvEventsSpec;
use super::model::ModelSpec;
use super::object::{Head, Place};
use super::source::Source;
use super::{Configuration, MAX_ENDPOINTS};
use super::{file_discovery, kv_events, list, model, picker, placement, resolve, tenant};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use warmroute_shared_state::policy::MAX_POLICY_BYTES;
use warmroute_shared_state::policy::tenants::Tenant;

/// Lists in lists are nobody's.
const MAX_LIST_DEPTH: usize = 1;

#[derive(Default)]
pub(super) struct Builder {
    configuration: Configuration,
    issues: Vec<Issue>,
    /// Where each name and each address was first given.
    first: HashMap<(&'static str, String), String>,
    /// Where each of the `KVEvents` documents begins.
    kv_events_places: Vec<Place>,
    /// Entries of endpoint lists, until all pools are known.
    entries: Vec<(Place, file_discovery::Entry)>,
}

impl Builder {
    pub(super) fn add(&mut self, source: &Source) {
        let documents = Document::split(&source.path, &source.text);
        if documents.is_empty() {
            self.issues.push(Issue::new(&source.path, 0, Problem::Empty));
        }
        for document in documents {
            self.add_document(&document, 0);
        }
    }

    fn add_document(&mut self, document: &Document<'_>, depth: usize) {
        let added = match document.kind() {
            Ok(Kind::List) if depth >= MAX_LIST_DEPTH => {
                let instead = "give each object as a document of its own, after a line `---`";
                let problem = Problem::Unsupported { what: "a List in a List".into(), instead };
                Err(vec![document.issue(1, problem)])
            }
            Ok(kind) => self.add_kind(document, kind, depth),
            Err(issue) if matches!(issue.problem, Problem::ForeignKind(_)) => {
                self.configuration.warnings.push(issue);
                Ok(())
            }
            Err(issue) => Err(vec![issue]),
        };
        self.issues.extend(added.err().unwrap_or_default());
    }

    fn add_kind(
        &mut self,
        document: &Document<'_>,
        kind: Kind,
        depth: usize,
    ) -> Result<(), Vec<Issue>> {
        let one = |issue| vec![issue];
        match kind {
            Kind::EndpointList => {
                let entries = file_discovery::read(document)?;
                self.configuration.endpoint_lists += 1;
                for Located { line, entry } in entries {
                    self.entries.push((Place { file: document.file.to_owned(), line }, entry));
                }
            }
            Kind::KvEvents => {
                self.configuration.kv_events.push(kv_events::read(document).map_err(one)?);
                self.configuration.kv_events_documents += 1;
                self.kv_events_places.push(document.place(1));
            }
            Kind::Model => {
                let (spec, names) = model::read(document).map_err(one)?;
                self.add_model(document.file, spec, names);
            }
            Kind::EndpointPickerConfig => self.add_picker(document, None)?,
            Kind::InferencePool | Kind::InferencePoolAlpha => {
                let read = if kind == Kind::InferencePool { pool::read } else { pool::read_alpha };
                let spec = read(document).map_err(one)?;
                self.named("InferencePool", &spec.head);
                self.configuration.objects.pools.push(spec);
            }
            Kind::InferenceObjective => {
                let spec = objective::read(document).map_err(one)?;
                self.named("InferenceObjective", &spec.head);
                self.configuration.objects.objectives.push(spec);
            }
            Kind::InferenceModelRewrite => {
                let mut spec = rewrite::read(document).map_err(one)?;
                self.configuration.warnings.append(&mut spec.warnings);
                self.named("InferenceModelRewrite", &spec.head);
                self.configuration.objects.rewrites.push(spec);
            }
            Kind::HttpRoute => {
                let mut spec = route::read(document).map_err(one)?;
                self.configuration.warnings.append(&mut spec.warnings);
                self.named("HTTPRoute", &spec.head);
                self.configuration.objects.routes.push(spec);
            }
            Kind::ConfigMap => self.add_config_map(document)?,
            Kind::TenantQuota => {
                let (spec, hashes) = tenant::read(document).map_err(one)?;
                // Budgets, shares and accounts go by the name alone.
                let name = spec.head.name.clone();
                self.once("tenant", name.clone(), &name, &spec.head.place);
                if let Some(jwt) = &spec.jwt {
                    let claim = format!("{}={}", jwt.tenant_claim, jwt.tenant_value);
                    let whose = format!("{}\n{claim}", jwt.issuer);
                    self.once("JWT claim", whose, &claim, &spec.head.place);
                }
                for (hash, line) in hashes {
                    // The start of it tells which: the whole has no place in a message.
                    let shown = format!("{}…", hash.get(..8).unwrap_or_default());
                    self.once("API key", hash, &shown, &spec.head.place.at(line));
                }
                self.configuration.objects.tenants.push(spec);
            }
            Kind::List => {
                for item in list::items(document).map_err(one)? {
                    let item = Document::new(document.file, item.line_offset, &item.text);
                    self.add_document(&item, depth + 1);
                }
            }
        }
        Ok(())
    }

    fn add_config_map(&mut self, document: &Document<'_>) -> Result<(), Vec<Issue>> {
        match config_map::read(document).map_err(|issue| vec![issue])? {
            Content::Mapping(spec) => {
                self.named("ConfigMap", &spec.head);
                self.configuration.objects.mappings.push(spec);
            }
            Content::Pickers(head, texts) => {
                let several = texts.len() > 1;
                for text in texts {
                    // Each is a file to llm-d's picker: one alone goes by the name of the whole, several by their own.
                    let name = if several { text.name } else { head.name.clone() };
                    let head = Head { name, ..head.clone() };
                    let mut inner = Document::new(document.file, text.line_offset, &text.text);
                    inner.one_line = text.one_line;
                    match inner.kind().map_err(|issue| vec![issue])? {
                        Kind::EndpointPickerConfig => {
                            self.add_picker(&inner, Some(head))?;
                        }
                        _ => self.configuration.warnings.push(config_map::nothing(&head)),
                    }
                }
            }
            Content::Nothing(head) => self.configuration.warnings.push(config_map::nothing(&head)),
        }
        Ok(())
    }

    fn add_picker(
        &mut self,
        document: &Document<'_>,
        owner: Option<Head>,
    ) -> Result<(), Vec<Issue>> {
        let mut spec = picker::read(document, owner)?;
        self.configuration.warnings.append(&mut spec.warnings);
        let place = document.place(1);
        let name = spec.head.full_name();
        self.once("EndpointPickerConfig", name.clone(), &name, &place);
        self.configuration.objects.pickers.push(spec);
        Ok(())
    }

    fn named(&mut self, what: &'static str, head: &Head) {
        let name = head.full_name();
        self.once(what, name.clone(), &name, &head.place);
    }

    /// Refuses a name that was given before.
    fn once(&mut self, what: &'static str, name: String, shown: &str, place: &Place) {
        if let Some(first) = self.first.insert((what, name), place.to_string()) {
            let problem = Problem::Duplicate { what, value: shown.to_owned(), first };
            self.issues.push(place.issue(problem));
        }
    }

    fn add_model(&mut self, file: &Path, spec: ModelSpec, names: model::Names) {
        for (value, line) in names {
            let place = Place { file: file.to_owned(), line };
            self.once("model name", value.clone(), &value, &place);
        }
        self.configuration.models.push(spec);
    }

    /// Finds every entry's pools, now that all are known.
    fn place_endpoints(&mut self) {
        for (place, entry) in std::mem::take(&mut self.entries) {
            match placement::place(&entry, &self.configuration.objects.pools) {
                Ok((specs, remark)) => {
                    let remark = remark.map(|remark| place.issue(remark));
                    self.configuration.warnings.extend(remark);
                    for spec in specs {
                        self.add_endpoint(&place, spec);
                    }
                }
                Err(problem) => self.issues.push(place.issue(problem)),
            }
        }
    }

    fn add_endpoint(&mut self, place: &Place, spec: EndpointSpec) {
        for (what, value) in [("name", spec.full_name()), ("address", spec.address.to_string())] {
            self.once(what, value.clone(), &value, place);
        }
        if let Err(problem) = kv_events::label_ports(&spec.labels) {
            self.issues.push(place.issue(problem));
        }
        self.configuration.endpoints.push(spec);
    }

    /// An endpoint whose events two documents are about: which of them holds is anybody's guess.
    fn check_selectors(&mut self) {
        let Configuration { kv_events: documents, endpoints, .. } = &self.configuration;
        // By document: the first endpoint that an earlier one is about too, and that one.
        let mut twice: BTreeMap<usize, (&EndpointSpec, usize)> = BTreeMap::new();
        for endpoint in endpoints {
            let about =
                documents.iter().enumerate().filter(|(_, document)| document.selects(endpoint));
            let mut about = about.map(|(index, _)| index);
            let Some(first) = about.next() else { continue };
            for index in about {
                twice.entry(index).or_insert((endpoint, first));
            }
        }
        let places = &self.kv_events_places;
        for (index, (endpoint, first)) in twice {
            let (Some(place), Some(first)) = (places.get(index), places.get(first)) else {
                continue;
            };
            let first = first.to_string();
            let problem = Problem::SelectedTwice { endpoint: endpoint.full_name(), first };
            self.issues.push(place.issue(problem));
        }
    }

    fn resolve(&mut self, root: &Path) {
        match resolve::resolve(&self.configuration.objects) {
            Ok(mut resolved) => {
                self.configuration.warnings.append(&mut resolved.warnings);
                self.configuration.unnamed_policy = resolved.policy;
                self.configuration.pickers = resolved.pickers;
            }
            Err(issues) => self.issues.extend(issues),
        }
        let size = self.configuration.unnamed_policy.to_json().len();
        if size > MAX_POLICY_BYTES {
            self.issues.push(self.too_large(root, size));
        }
    }

    /// A policy of `size` bytes: where the tenants leave no room, if there is any for them.
    fn too_large(&self, root: &Path, size: usize) -> Issue {
        let Configuration { unnamed_policy: policy, objects, .. } = &self.configuration;
        let json = |tenants: &[Tenant]| serde_json::to_vec(tenants).map_or(0, |json| json.len());
        let others = size.saturating_sub(json(&policy.tenants));
        // Of the list's two brackets one goes as the comma that the last tenant has not.
        let Some(mut room) = MAX_POLICY_BYTES.checked_sub(others.saturating_add(1)) else {
            let text = format!(
                "routes, plugins and model names come to {others} bytes for Envoy's filter, more than {MAX_POLICY_BYTES}; \
                 give fewer"
            );
            return Issue::new(root, 0, Problem::Conflict(text));
        };
        let first = policy.tenants.iter().position(|tenant| {
            let with_comma = json(std::slice::from_ref(tenant)).saturating_sub(1);
            let left = room.checked_sub(with_comma);
            room = left.unwrap_or(0);
            left.is_none()
        });
        let first = first.unwrap_or_default();
        let place = objects.tenants.get(first).map(|tenant| tenant.head.place.clone());
        let text = format!(
            "no room for this tenant and those behind it, {} of {}: routes, plugins and tenants come to {size} bytes for \
             Envoy's filter, more than {MAX_POLICY_BYTES}; give tenants fewer limits and keys, or some of them another \
             Envoy with its agent",
            policy.tenants.len().saturating_sub(first),
            policy.tenants.len()
        );
        place.unwrap_or_default().issue(Problem::Conflict(text))
    }

    /// What pickers say of KV events, behind what documents say of them: the first that selects an endpoint counts.
    fn add_pickers_kv_events(&mut self) {
        let Configuration { pickers, unnamed_policy: policy, objects, kv_events, .. } =
            &mut self.configuration;
        for (index, picker) in pickers.iter().enumerate() {
            let Some(events) = &picker.kv_events else { continue };
            let pools = policy.pools.iter().zip(&objects.pools);
            let pools = pools.filter(|(pool, _)| pool.scheduler == index);
            // Not by the pools' names: a pool that is renamed must not make its caches unknown.
            kv_events.extend(pools.map(|(_, pool)| KvEventsSpec {
                endpoint_labels: pool.selector.clone(),
                namespace: Some(pool.head.namespace.clone()),
                ..events.clone()
            }));
            if policy.pools.is_empty() {
                kv_events.push(events.clone());
            }
        }
    }

    pub(super) fn finish(mut self, root: &Path, files: usize) -> Result<Configuration, Vec<Issue>> {
        self.configuration.files = files;
        self.place_endpoints();
        self.check_selectors();
        let limits = [
            ("endpoints", self.configuration.endpoints.len(), MAX_ENDPOINTS),
            ("models", self.configuration.models.len(), model::MAX_MODELS),
        ];
        for (what, _, limit) in limits.into_iter().filter(|(_, n, limit)| n > limit) {
            self.issues.push(Issue::new(root, 0, Problem::TooMany { what, limit }));
        }
        if let Err(problem) = self.configuration.objects.check_counts() {
            self.issues.push(Issue::new(root, 0, problem));
        }
        if self.issues.is_empty() {
            self.resolve(root);
            self.add_pickers_kv_events();
        }
        if self.issues.is_empty() && self.configuration.endpoint_lists == 0 {
            let issue = Issue::new(root, 0, Problem::NoEndpointList);
            if self.configuration.objects.is_empty() {
                self.issues.push(issue);
            } else {
                self.configuration.warnings.push(issue);
            }
        }
        if self.issues.is_empty() { Ok(self.configuration) } else { Err(self.issues) }
    }
}
