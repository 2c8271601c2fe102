//! Carries a step out: headers, body, counters.

use crate::host;
use crate::request_stats::RequestStats;
use proxy_wasm::types::{BufferType, MapType};
use warmroute_core::exchange::{Forward, Record, ResponseEdit};
use warmroute_core::request::{Splice, spliced};
use warmroute_core::telemetry::{Labels, Phase, counter};

pub(crate) fn count_start(stats: &mut RequestStats, record: &Record, labels: &Labels) {
    stats.observe(record, labels, Phase::Started);
    let target = labels.target_model.as_str();
    if let Some(rewrite) = &record.rewritten_by {
        let all = [
            ("model_rewrite_name", rewrite.as_str()),
            ("model_name", &labels.model),
            ("target_model", target),
        ];
        stats.count(counter::REWRITES, &all);
    }
    if let Some(stages) = &record.stages {
        let all = [
            ("plugin_name", stages.plugin_name.as_str()),
            ("plugin_type", &stages.plugin_type),
            ("model_name", &labels.model),
            ("decision_type", stages.decision),
        ];
        stats.count(counter::DISAGG, &all);
        stats.count(counter::PD, &all);
    }
    let name = record.endpoint_name.as_deref().unwrap_or_default();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let port = record.endpoint.as_deref().and_then(|address| address.rsplit_once(':'));
    let status = if record.endpoint.is_some() { "success" } else { "failure" };
    let all = [
        ("status", status),
        ("target_model_name", target),
        ("endpoint_name", name),
        ("namespace", namespace),
        ("port", port.map_or("", |(_, port)| port)),
    ];
    stats.count(counter::ATTEMPTS, &all);
}

/// Changes a request on its way out.
pub(crate) fn change_request(forward: &Forward) {
    const MAP: MapType = MapType::HttpRequestHeaders;
    if let Some(length) = splice_body(&forward.splices)
        && host::header(MAP, "content-length").is_some()
    {
        host::set_header(MAP, "content-length", &length.to_string());
    }
    for name in &forward.remove_headers {
        host::remove_header(MAP, name);
    }
    for (name, value) in &forward.set_headers {
        host::set_header(MAP, name, value);
    }
    for (name, value) in &forward.add_headers {
        host::add_header(MAP, name, value);
    }
}

/// The whole body is held back in Envoy: a few bytes of it are replaced, all else goes as it was sent. Returns its new
/// length, if it was changed.
fn splice_body(splices: &[Splice]) -> Option<usize> {
    if splices.is_empty() {
        return None;
    }
    let body = host::buffer(BufferType::HttpRequestBody, 0, usize::MAX >> 1);
    let changed = spliced(&body, &mut splices.to_vec())?;
    host::set_buffer(BufferType::HttpRequestBody, body.len(), &changed);
    Some(changed.len())
}

pub(crate) fn change_response(edit: &ResponseEdit) {
    const MAP: MapType = MapType::HttpResponseHeaders;
    if edit.changes_length {
        host::remove_header(MAP, "content-length");
    }
    for (name, value) in &edit.set_headers {
        host::set_header(MAP, name, value);
    }
}
