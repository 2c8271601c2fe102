//! Filters, scorers, deciders and detectors, each as the only plugin of a scheduler.

use crate::check::{figures, same};
use crate::entry::{Entry, Failure, Fields};
use serde_json::{Value, json};
use warmroute_core::flow_control::policy::saturation::{
    InFlight, Utilization, concurrency, utilization as utilization_of,
};
use warmroute_core::scheduling::{
    Candidate, Headers, Request, SchedulerState, SchedulingError, schedule, scores,
};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{self, Detector, Plugin};
use warmroute_shared_state::policy::scheduler::{
    Disagg, Handler, Named, Profile, Scheduler, WeightedScorer,
};
use warmroute_shared_state::signals::{Adapters, Signals};

/// The attribute that entries mean where they name none.
const ATTRIBUTE: &str = "attribute";

const CONTEXT_LENGTH_RANGE: &str = "llm-d.ai/context-length-range";

/// Blocks of the prompt where an entry gives the matched share in percent.
const HUNDRED: usize = 100;

/// An endpoint as entries describe it.
#[derive(Debug, Default)]
struct Endpoint {
    name: String,
    labels: Vec<(String, String)>,
    signals: Signals,
    waiting: Option<f64>,
    running: Option<f64>,
    kv: Option<f64>,
    age_ms: Option<u64>,
    active: u32,
    tokens: u64,
    matched_blocks: usize,
    matched_tokens: u64,
    prompt_tokens: u64,
    ttft_ms: Option<f64>,
}

impl Endpoint {
    #[allow(clippy::cast_possible_truncation)]
    fn candidate(&self, at: usize) -> Candidate<'_> {
        Candidate {
            labels: &self.labels,
            signals: &self.signals,
            waiting: self.waiting.map(|value| value as f32),
            running: self.running.map(|value| value as f32),
            kv_usage: self.kv.map(|value| value as f32),
            scrape_age_ms: self.age_ms,
            active_requests: self.active,
            uncached_tokens: self.tokens,
            matched_blocks: self.matched_blocks,
            matched_tokens: self.matched_tokens,
            prompt_tokens: self.prompt_tokens,
            predicted_ttft_ms: self.ttft_ms,
            ..Candidate::unknown(EndpointId(at as u64), &self.name, "10.0.0.1:8000")
        }
    }
}

/// What an entry says of the request.
#[derive(Debug, Default)]
struct Asked {
    model: String,
    blocks: usize,
    headers: Vec<(String, String)>,
}

impl Headers for Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The plugin as the agent reads it.
fn read(name: &str, params: &Value) -> Result<Plugin, Failure> {
    let read = plugin::read(name, params);
    read.map(|instance| instance.plugin).map_err(|error| Failure::new(error.to_string()))
}

/// A profile with this filter or scorer.
fn profile(name: &str, plugin: &Plugin, as_filter: bool) -> Result<Profile, Failure> {
    let wrong = || Failure::new(format!("neither filter nor scorer: {plugin:?}"));
    let mut profile = Profile { scorers: Vec::new(), ..Scheduler::default().profiles.remove(0) };
    if as_filter {
        let plugin = plugin.filter().ok_or_else(wrong)?;
        profile.filters.push(Named { name: name.to_owned(), plugin });
    } else {
        let plugin = plugin.scorer().ok_or_else(wrong)?;
        profile.scorers.push(WeightedScorer { name: name.to_owned(), plugin, weight: 1.0 });
    }
    Ok(profile)
}

/// Places of the endpoints that are kept, with their scores.
fn kept(
    profile: Profile,
    endpoints: &[Endpoint],
    asked: &Asked,
    state: &SchedulerState,
) -> Result<Vec<(usize, f64)>, Failure> {
    let scheduler = Scheduler { profiles: vec![profile], ..Scheduler::default() };
    let candidates: Vec<_> =
        endpoints.iter().enumerate().map(|(at, endpoint)| endpoint.candidate(at)).collect();
    let request = Request {
        target_model: &asked.model,
        prompt_blocks: asked.blocks,
        multimodal: false,
        headers: asked,
    };
    match scores(&scheduler, &request, &candidates, state, 0, &mut random()) {
        Ok(scores) => {
            let place = |id: EndpointId| usize::try_from(id.0).unwrap_or(usize::MAX);
            Ok(scores.into_iter().map(|(id, score)| (place(id), score)).collect())
        }
        Err(SchedulingError::NoneLeft { .. }) => Ok(Vec::new()),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

fn random() -> impl FnMut() -> u64 {
    let mut state = 7u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    }
}

pub(crate) fn scorer(entry: &Entry) -> Result<(), Failure> {
    let mut params = entry.params.clone();
    if entry.plugin == "endpoint-attribute-scorer" && params.get("attributeKey").is_none() {
        params["attributeKey"] = json!(ATTRIBUTE);
    }
    let plugin = read(&entry.plugin, &params)?;
    let profile = || profile(&entry.plugin, &plugin, false);
    let (endpoints, mut asked) = scored(entry)?;
    let state = cold_picks(entry, &profile()?)?;
    let mut scores = Vec::new();
    if let Some(totals) = totals(entry) {
        // Of one request all endpoints have the same number of blocks; these are a request each.
        for (endpoint, total) in endpoints.into_iter().zip(totals) {
            asked.blocks = total;
            scores.extend(kept(profile()?, &[endpoint], &asked, &state)?);
        }
    } else {
        scores = kept(profile()?, &endpoints, &asked, &state)?;
    }
    let scores: Vec<f64> = scores.into_iter().map(|(_, score)| score).collect();
    figures(entry, "scores", &scores)
}

/// Blocks of each endpoint's prompt, if the entry says.
fn totals(entry: &Entry) -> Option<Vec<usize>> {
    let infos = entry.input.get("match_info")?.as_array()?;
    let total = |info: &Value| info["total"].as_u64().and_then(|n| usize::try_from(n).ok());
    Some(infos.iter().map(|info| total(info).unwrap_or(0)).collect())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scored(entry: &Entry) -> Result<(Vec<Endpoint>, Asked), Failure> {
    let one = |key| {
        let input = entry.input(&[key])?;
        Ok::<_, Failure>(input.list(key)?.iter().map(Value::as_f64).collect::<Vec<_>>())
    };
    let each = |values: Vec<Option<f64>>, set: &dyn Fn(&mut Endpoint, Option<f64>)| {
        let endpoint = |value| {
            let mut endpoint = Endpoint::default();
            set(&mut endpoint, value);
            endpoint
        };
        values.into_iter().map(endpoint).collect::<Vec<_>>()
    };
    let mut asked = Asked::default();
    let endpoints = match entry.plugin.as_str() {
        "queue-scorer" | "load-aware-scorer" => {
            each(one("waiting_queue_size")?, &|e, value| e.waiting = value)
        }
        "running-requests-size-scorer" => {
            each(one("running_requests_size")?, &|e, value| e.running = value)
        }
        "kv-cache-utilization-scorer" => each(one("kv_cache_usage")?, &|e, value| e.kv = value),
        "active-request-scorer" => {
            each(one("active_requests")?, &|e, value| e.active = value.unwrap_or(0.0) as u32)
        }
        "endpoint-attribute-scorer" => each(one("attribute")?, &|e, value| {
            e.signals.attributes.extend(value.map(|value| (ATTRIBUTE.to_owned(), value)));
        }),
        "token-load-scorer" => token_load(entry)?,
        "prefix-cache-scorer" => prefix_cache(entry)?,
        "lora-affinity-scorer" => {
            let input = entry.input(&["target_model", "endpoints"])?;
            input.text("target_model")?.clone_into(&mut asked.model);
            input.list("endpoints")?.iter().map(adapters).collect::<Result<_, _>>()?
        }
        "no-hit-lru-scorer" => {
            let input = entry.input(&["endpoints", "prefix_hit", "prior_cold_picks", "lru"])?;
            let hits = input.list("prefix_hit")?.iter();
            let hit = |hit: &Value| usize::from(hit.as_bool() == Some(true));
            hits.map(|value| Endpoint { matched_blocks: hit(value), ..Endpoint::default() })
                .collect()
        }
        _ => return Err(Failure::new("nothing runs this scorer")),
    };
    Ok((endpoints, asked))
}

fn token_load(entry: &Entry) -> Result<Vec<Endpoint>, Failure> {
    let input = entry.input(&["inflight_tokens", "uncached_request_tokens"])?;
    let own = input.optional("uncached_request_tokens").and_then(Value::as_array);
    let tokens = input.list("inflight_tokens")?.iter().enumerate();
    let endpoint = |(at, tokens): (usize, &Value)| Endpoint {
        tokens: tokens.as_u64().unwrap_or(0),
        prompt_tokens: own.and_then(|own| own.get(at)?.as_u64()).unwrap_or(0),
        ..Endpoint::default()
    };
    Ok(tokens.map(endpoint).collect())
}

fn prefix_cache(entry: &Entry) -> Result<Vec<Endpoint>, Failure> {
    let infos = entry.input(&["match_info"])?;
    let endpoint = |info: &Value| {
        if info.is_null() {
            return Ok(Endpoint::default());
        }
        let info = Fields::new(info, &["match", "total", "block_size"])?;
        let blocks = info.get("match")?.as_u64().unwrap_or(0);
        let block_tokens = info.optional("block_size").and_then(Value::as_u64).unwrap_or(1);
        Ok(Endpoint {
            matched_blocks: usize::try_from(blocks).unwrap_or(usize::MAX),
            matched_tokens: blocks * block_tokens,
            ..Endpoint::default()
        })
    };
    infos.list("match_info")?.iter().map(endpoint).collect()
}

fn adapters(value: &Value) -> Result<Endpoint, Failure> {
    let fields = Fields::new(value, &["active", "waiting", "max_active"])?;
    let names = |key| {
        let names = fields.list(key)?.iter().map(|name| name.as_str().unwrap_or_default());
        Ok::<_, Failure>(names.map(str::to_owned).collect::<Vec<_>>())
    };
    let max = fields.get("max_active")?.as_u64().and_then(|max| u32::try_from(max).ok());
    let (active, waiting) = (names("active")?, names("waiting")?);
    let adapters = Some(Adapters { active, waiting, max: max.unwrap_or(0) });
    Ok(Endpoint { signals: Signals { adapters, ..Signals::default() }, ..Endpoint::default() })
}

/// The state after the cold picks that an entry names: each is made.
fn cold_picks(entry: &Entry, profile: &Profile) -> Result<SchedulerState, Failure> {
    let mut state = SchedulerState::default();
    let list = |key| entry.input.get(key).and_then(Value::as_array);
    let picks = list("prior_cold_picks").or(list("lru")).into_iter().flatten();
    for pick in picks {
        let mut names = list("endpoints").into_iter().flatten();
        let at = names.position(|name| name == pick);
        let at = at.ok_or_else(|| Failure::new(format!("no endpoint {pick}")))?;
        let endpoint = Endpoint::default();
        let scheduler = Scheduler { profiles: vec![profile.clone()], ..Scheduler::default() };
        let asked = Asked::default();
        let request =
            Request { target_model: "", prompt_blocks: 0, multimodal: false, headers: &asked };
        let candidates = [endpoint.candidate(at)];
        let decision = schedule(&scheduler, &request, &candidates, &state, 0, &mut random());
        state.remember(&decision.map_err(|error| Failure::new(error.to_string()))?, 0);
    }
    Ok(state)
}

pub(crate) fn filter(entry: &Entry) -> Result<(), Failure> {
    if entry.input.get("parse_range").is_some() {
        let range = entry.input(&["parse_range"])?.text("parse_range")?.to_owned();
        let expected = entry.expected(&["ok"])?.flag("ok")?;
        let labels = vec![(CONTEXT_LENGTH_RANGE.to_owned(), range)];
        let endpoints = [Endpoint { labels, ..Endpoint::default() }];
        let profile = profile(&entry.plugin, &read(&entry.plugin, &entry.params)?, false)?;
        let scores = kept(profile, &endpoints, &Asked::default(), &SchedulerState::default())?;
        // Every range scores something, and a label that is none 0.
        return same(&scores.iter().any(|(_, score)| *score > 0.0), &expected);
    }
    let mut params = entry.params.clone();
    if entry.plugin == "context-length-aware" {
        // The entries ask the filter, which a profile has only where this is set.
        params["enableFiltering"] = json!(true);
    }
    let plugin = read(&entry.plugin, &params)?;
    let (endpoints, asked) = filtered(entry)?;
    let profile = profile(&entry.plugin, &plugin, true)?;
    let kept = kept(profile, &endpoints, &asked, &SchedulerState::default())?;
    let expected = entry.expected(&["kept_indexes", "kept"])?;
    if expected.optional("kept").is_some() {
        let names = kept.iter().filter_map(|(at, _)| endpoints.get(*at));
        let names: Vec<Value> = names.map(|endpoint| json!(endpoint.name)).collect();
        same(&names, expected.list("kept")?)
    } else {
        let places: Vec<Value> = kept.iter().map(|(at, _)| json!(at)).collect();
        same(&places, expected.list("kept_indexes")?)
    }
}

fn filtered(entry: &Entry) -> Result<(Vec<Endpoint>, Asked), Failure> {
    let mut asked = Asked::default();
    let endpoints = match entry.plugin.as_str() {
        "utilization-filter" => {
            let input = entry.input(&["endpoints"])?;
            input.list("endpoints")?.iter().map(utilization).collect::<Result<_, _>>()?
        }
        "prefix-cache-affinity-filter" => {
            asked.blocks = HUNDRED;
            let input = entry.input(&["endpoints"])?;
            input.list("endpoints")?.iter().map(affinity).collect::<Result<_, _>>()?
        }
        "session-affinity-filter" => {
            let input = entry.input(&["endpoints", "headers"])?;
            let headers = input.get("headers")?.as_object().into_iter().flatten();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            asked.headers = headers.map(|(name, value)| (name.clone(), text(value))).collect();
            let names = input.list("endpoints")?.iter();
            names.map(|name| Endpoint { name: text(name), ..Endpoint::default() }).collect()
        }
        "context-length-aware" => {
            let input = entry.input(&["tokens", "labels"])?;
            let prompt_tokens = input.get("tokens")?.as_u64().unwrap_or(0);
            let label = |value: &Value| {
                let label = value.as_str().map(str::to_owned);
                label.map(|label| (CONTEXT_LENGTH_RANGE.to_owned(), label))
            };
            let endpoint = |value: &Value| Endpoint {
                prompt_tokens,
                labels: label(value).into_iter().collect(),
                ..Endpoint::default()
            };
            input.list("labels")?.iter().map(endpoint).collect()
        }
        _ => return Err(Failure::new("nothing runs this filter")),
    };
    Ok((endpoints, asked))
}

fn utilization(value: &Value) -> Result<Endpoint, Failure> {
    let fields = Fields::new(value, &["active", "running", "waiting", "kv"])?;
    let number = |key| fields.optional(key).and_then(Value::as_f64);
    let active = fields.optional("active").and_then(Value::as_u64).unwrap_or(0);
    Ok(Endpoint {
        active: u32::try_from(active).unwrap_or(u32::MAX),
        running: number("running"),
        waiting: number("waiting"),
        kv: number("kv"),
        ..Endpoint::default()
    })
}

fn affinity(value: &Value) -> Result<Endpoint, Failure> {
    let fields = Fields::new(value, &["match_pct", "ttft_ms", "inflight_tokens"])?;
    let matched = fields.get("match_pct")?.as_u64().unwrap_or(0);
    Ok(Endpoint {
        matched_blocks: usize::try_from(matched).unwrap_or(usize::MAX),
        ttft_ms: fields.get("ttft_ms")?.as_f64(),
        tokens: fields.get("inflight_tokens")?.as_u64().unwrap_or(0),
        ..Endpoint::default()
    })
}

pub(crate) fn decider(entry: &Entry) -> Result<(), Failure> {
    let Plugin::Decider(decider) = read(&entry.plugin, &entry.params)? else {
        return Err(Failure::new("no decider"));
    };
    let input = entry.input(&["input_tokens", "cached_tokens"])?;
    // Without cached tokens there is no decode endpoint.
    let decode = input.optional("cached_tokens").map(|cached| Endpoint {
        prompt_tokens: input.get("input_tokens").ok().and_then(Value::as_u64).unwrap_or(0),
        matched_tokens: cached.as_u64().unwrap_or(0),
        ..Endpoint::default()
    });
    let plain = Scheduler::default().profiles.remove(0);
    let scheduler = Scheduler {
        profiles: vec![plain.clone(), plain],
        handler: Handler::Disagg(Disagg {
            plugin_type: "disagg-profile-handler".into(),
            name: "disagg-profile-handler".into(),
            prefill_first: false,
            decode: Some(0),
            prefill: Some(1),
            encode: None,
            prefill_decider: Some(decider),
            encode_decider: None,
            primary_port: None,
        }),
        ..Scheduler::default()
    };
    let candidates: Vec<_> = decode.iter().map(|endpoint| endpoint.candidate(0)).collect();
    let asked = Asked::default();
    let request =
        Request { target_model: "", prompt_blocks: 1, multimodal: false, headers: &asked };
    let state = SchedulerState::default();
    let elsewhere = match schedule(&scheduler, &request, &candidates, &state, 0, &mut random()) {
        Ok(decision) => decision.prefill.is_some(),
        Err(SchedulingError::NoCandidate) => false,
        Err(error) => return Err(Failure::new(error.to_string())),
    };
    same(&elsewhere, &entry.expected(&["disaggregate"])?.flag("disaggregate")?)
}

pub(crate) fn detector(entry: &Entry) -> Result<(), Failure> {
    let plugin = read(&entry.plugin, &entry.params)?;
    let input = entry.input(&["inflight_requests", "endpoints", "filter_endpoints"])?;
    if input.optional("filter_endpoints").is_some() {
        let endpoints = input.list("filter_endpoints")?.iter().map(metrics);
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let profile = profile(&entry.plugin, &plugin, true)?;
        let kept = kept(profile, &endpoints, &Asked::default(), &SchedulerState::default())?;
        let expected = entry.expected(&["kept_count"])?;
        return same(&json!(kept.len()), expected.get("kept_count")?);
    }
    let endpoints: Vec<Endpoint> = if input.optional("inflight_requests").is_some() {
        let active = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let values = input.list("inflight_requests")?.iter();
        values
            .map(|value| Endpoint { active: active(value).unwrap_or(0), ..Endpoint::default() })
            .collect()
    } else {
        input.list("endpoints")?.iter().map(metrics).collect::<Result<_, _>>()?
    };
    let Plugin::Detector(detector) = plugin else { return Err(Failure::new("no detector")) };
    figures(entry, "saturation", &[saturation(&detector, &endpoints)])
}

/// How full a pool of these endpoints is.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn saturation(detector: &Detector, endpoints: &[Endpoint]) -> f64 {
    match detector {
        Detector::Utilization(detector) => {
            let metrics = |e: &Endpoint| {
                let (waiting, kv) = (e.waiting.map(|n| n as f32), e.kv.map(|n| n as f32));
                (Utilization::of(detector, waiting, kv, e.age_ms), 0.0)
            };
            utilization_of(detector, endpoints.iter().map(metrics))
        }
        Detector::Concurrency(detector) => {
            let each =
                |e: &Endpoint| InFlight { requests: f64::from(e.active), tokens: e.tokens as f64 };
            let sum = endpoints.iter().map(each).fold(InFlight::default(), |sum, e| InFlight {
                requests: sum.requests + e.requests,
                tokens: sum.tokens + e.tokens,
            });
            concurrency(detector, sum, endpoints.iter().map(each))
        }
    }
}

fn metrics(value: &Value) -> Result<Endpoint, Failure> {
    if value.is_null() {
        return Ok(Endpoint::default());
    }
    let fields = Fields::new(value, &["queue", "kv", "age_ms"])?;
    Ok(Endpoint {
        waiting: Some(fields.number("queue")?),
        kv: Some(fields.number("kv")?),
        age_ms: fields.get("age_ms")?.as_u64(),
        ..Endpoint::default()
    })
}
