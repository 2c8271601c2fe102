//! `flowControl`: what waits where when the endpoints are full.
//!
//! Checked here whether or not the gate is on; without the gate only the saturation detector counts.

use super::Notes;
use super::document::{RawBand, RawFlowControl, Reference};
use super::instances::Instances;
use super::quantity;
use crate::config::error::Problem;
use crate::config::object::Fault;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::flow::DEFAULT_REQUEST_TTL_MS;
use warmroute_shared_state::policy::plugin::{
    Detector, Fairness, Kind, Ordering, Plugin, UsageLimit, parse_duration,
};
use warmroute_shared_state::policy::scheduler::Named;

/// Bands that are written at most.
const MAX_BANDS: usize = 64;
/// A band's own limits where it gives none, or 0.
const DEFAULT_BAND_BYTES: u64 = 1_000_000_000;
const DEFAULT_BAND_REQUESTS: u64 = 5000;

/// The section, with defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowControlSpec {
    /// The gate `flowControl` is on.
    pub enabled: bool,
    /// Bytes that wait in all; 0 = any number.
    pub max_bytes: u64,
    /// Requests that wait in all; 0 = any number.
    pub max_requests: u64,
    /// How long a request waits; 0 = without end.
    pub request_ttl_ms: u64,
    /// How long it waits while there is no endpoint; 0 = without end.
    pub no_endpoint_ttl_ms: u64,
    /// Bands, the highest priority first.
    pub bands: Vec<Band>,
    /// A band for a priority that has none.
    pub default_band: Band,
    /// The same for priorities below 0, if it differs.
    pub default_negative_band: Option<Band>,
    /// Up to which saturation a priority is let through.
    pub usage_limit: Named<UsageLimit>,
    /// What tells how full it is.
    pub detector: Named<Detector>,
    /// Requests under way may be ended for others.
    pub enable_eviction: bool,
}

/// One band.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// Its priority; 0 for a default band.
    pub priority: i32,
    /// Bytes that wait in it at most.
    pub max_bytes: u64,
    /// Requests that wait in it at most.
    pub max_requests: u64,
    /// Whose turn it is.
    pub fairness: Named<Fairness>,
    /// Which request of a flow goes next.
    pub ordering: Named<Ordering>,
}

impl Default for Band {
    fn default() -> Self {
        Self {
            priority: 0,
            max_bytes: DEFAULT_BAND_BYTES,
            max_requests: DEFAULT_BAND_REQUESTS,
            fairness: named("global-strict-fairness-policy", Fairness::GlobalStrict),
            ordering: named("fcfs-ordering-policy", Ordering::FirstCome),
        }
    }
}

impl Default for FlowControlSpec {
    fn default() -> Self {
        Self {
            enabled: false,
            max_bytes: 0,
            max_requests: 0,
            request_ttl_ms: DEFAULT_REQUEST_TTL_MS,
            no_endpoint_ttl_ms: DEFAULT_REQUEST_TTL_MS,
            bands: Vec::new(),
            default_band: Band::default(),
            default_negative_band: None,
            usage_limit: named("static-usage-limit-policy", UsageLimit::Static { threshold: 1.0 }),
            detector: named("utilization-detector", Detector::default()),
            enable_eviction: false,
        }
    }
}

fn named<T>(name: &str, plugin: T) -> Named<T> {
    Named { name: name.into(), plugin }
}

/// Compiles the section; `former` is the detector at the top of the document.
///
/// # Errors
/// The first fault.
pub(super) fn compile(
    raw: Option<Spanned<RawFlowControl>>,
    former: Option<Reference>,
    enabled: bool,
    instances: &Instances,
    notes: &mut Notes<'_>,
) -> Result<FlowControlSpec, Fault> {
    let mut spec = FlowControlSpec { enabled, ..FlowControlSpec::default() };
    if let Some(former) = &former {
        let line = former.plugin_ref.referenced.line();
        notes.warn(
            line,
            "top-level `saturationDetector` is deprecated; use `flowControl.saturationDetector`",
        );
    }
    let Some(raw) = raw else {
        if let Some(detector) = former {
            spec.detector = detector_of(&detector, instances)?;
        }
        return Ok(spec);
    };
    let line = raw.referenced.line();
    let raw = raw.value;
    if !enabled {
        let text = "the feature gate `flowControl` is off, so of this only `saturationDetector` counts; add the gate";
        notes.warn(line, text);
    }
    spec.max_bytes = amount("maxBytes", raw.max_bytes.as_ref())?.unwrap_or(0);
    spec.max_requests = amount("maxRequests", raw.max_requests.as_ref())?.unwrap_or(0);
    let ttl = millis("defaultRequestTTL", raw.default_request_ttl.as_ref())?;
    let without = millis("noEndpointRequestTTL", raw.no_endpoint_request_ttl.as_ref())?;
    spec.request_ttl_ms = ttl.unwrap_or(DEFAULT_REQUEST_TTL_MS);
    spec.no_endpoint_ttl_ms = without.or(ttl).unwrap_or(DEFAULT_REQUEST_TTL_MS);
    if let Some(default) = raw.default_priority_band {
        spec.default_band = band(default, instances)?;
    }
    spec.default_negative_band =
        raw.default_negative_priority_band.map(|default| band(default, instances)).transpose()?;
    let bands = raw.priority_bands.unwrap_or_default();
    if bands.len() > MAX_BANDS {
        return Err((line, Problem::TooMany { what: "priority bands", limit: MAX_BANDS }));
    }
    for raw in bands {
        let line = raw.referenced.line();
        let band = band(raw.value, instances)?;
        if spec.bands.iter().any(|earlier| earlier.priority == band.priority) {
            let problem =
                Problem::bad("priority", &band.priority.to_string(), "each priority once");
            return Err((line, problem));
        }
        spec.bands.push(band);
    }
    spec.bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
    if let Some(name) = raw.usage_limit_policy_plugin_ref {
        let found = instances.find(&name, Kind::UsageLimitPolicy)?;
        if let Plugin::UsageLimit(limit) = found.plugin() {
            spec.usage_limit = named(found.name(), *limit);
        }
    }
    if let Some(detector) = raw.saturation_detector.or(former) {
        spec.detector = detector_of(&detector, instances)?;
    }
    spec.enable_eviction = raw.enable_eviction.unwrap_or(false);
    Ok(spec)
}

fn detector_of(reference: &Reference, instances: &Instances) -> Result<Named<Detector>, Fault> {
    let found = instances.find(&reference.plugin_ref, Kind::SaturationDetector)?;
    Ok(match found.plugin() {
        Plugin::Detector(detector) => named(found.name(), *detector),
        _ => FlowControlSpec::default().detector,
    })
}

fn band(raw: RawBand, instances: &Instances) -> Result<Band, Fault> {
    let mut band = Band::default();
    if let Some(priority) = raw.priority {
        band.priority = i32::try_from(priority.value).map_err(|_| {
            let given = priority.value.to_string();
            (priority.referenced.line(), Problem::bad("priority", &given, "a number of 32 bits"))
        })?;
    }
    let some = |amount: Option<u64>, default| amount.filter(|n| *n > 0).unwrap_or(default);
    band.max_bytes = some(amount("maxBytes", raw.max_bytes.as_ref())?, DEFAULT_BAND_BYTES);
    band.max_requests =
        some(amount("maxRequests", raw.max_requests.as_ref())?, DEFAULT_BAND_REQUESTS);
    if let Some(name) = raw.fairness_policy_ref {
        let found = instances.find(&name, Kind::FairnessPolicy)?;
        if let Plugin::Fairness(fairness) = found.plugin() {
            band.fairness = named(found.name(), fairness.clone());
        }
    }
    if let Some(name) = raw.ordering_policy_ref {
        let found = instances.find(&name, Kind::OrderingPolicy)?;
        if let Plugin::Ordering(ordering) = found.plugin() {
            band.ordering = named(found.name(), *ordering);
        }
    }
    Ok(band)
}

fn amount(field: &'static str, text: Option<&Spanned<String>>) -> Result<Option<u64>, Fault> {
    let parse = |text: &Spanned<String>| {
        quantity::parse(text.value.trim()).ok_or_else(|| {
            let expected = "a quantity of 0 or more, like 500, 1k or 10Gi";
            (text.referenced.line(), Problem::bad(field, &text.value, expected))
        })
    };
    text.map(parse).transpose()
}

fn millis(field: &'static str, text: Option<&Spanned<String>>) -> Result<Option<u64>, Fault> {
    let parse = |text: &Spanned<String>| {
        // 0 is "without end": what is short is not.
        let whole = |duration: std::time::Duration| match duration.as_millis() {
            0 if !duration.is_zero() => 1,
            millis => millis,
        };
        let millis = parse_duration(text.value.trim()).map(whole);
        millis.and_then(|millis| u64::try_from(millis).ok()).ok_or_else(|| {
            let expected = "a duration like 60s, 500ms or 1m30s";
            (text.referenced.line(), Problem::bad(field, &text.value, expected))
        })
    };
    text.map(parse).transpose()
}
