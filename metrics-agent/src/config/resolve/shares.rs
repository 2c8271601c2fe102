//! What the policy says of who may use what and who waits: tenants and flow control.

use crate::config::picker::PickerSpec;
use crate::config::picker::flow_control::Band as BandSpec;
use crate::config::tenant::{Limits, TenantSpec};
use warmroute_shared_state::policy::flow::{Band, BandLimits, FlowControl};
use warmroute_shared_state::policy::tenants::{Accounting, JwtClaim, Limit, Tenant};

/// Flow control of those pickers that have it on; `pickers` are in the order of the policy's schedulers.
pub(super) fn flow(pickers: &[PickerSpec]) -> Vec<FlowControl> {
    let on = pickers.iter().enumerate().filter(|(_, picker)| picker.flow_control.enabled);
    on.map(|(scheduler, picker)| {
        let spec = &picker.flow_control;
        let mut bands: Vec<Band> = spec
            .bands
            .iter()
            .map(|band| Band { priority: band.priority, limits: limits(band) })
            .collect();
        let default_band = limits(&spec.default_band);
        if !bands.iter().any(|band| band.priority == 0) {
            bands.push(Band { priority: 0, limits: default_band.clone() });
            bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
        }
        FlowControl {
            scheduler,
            max_bytes: spec.max_bytes,
            max_requests: spec.max_requests,
            request_ttl_ms: spec.request_ttl_ms,
            no_endpoint_ttl_ms: spec.no_endpoint_ttl_ms,
            bands,
            default_band,
            default_negative_band: spec.default_negative_band.as_ref().map(limits),
            detector: spec.detector.plugin,
            usage_limit: spec.usage_limit.plugin,
            eviction: spec.enable_eviction,
        }
    })
    .collect()
}

fn limits(band: &BandSpec) -> BandLimits {
    BandLimits {
        max_bytes: band.max_bytes,
        max_requests: band.max_requests,
        fairness: band.fairness.plugin.clone(),
        ordering: band.ordering.plugin,
    }
}

/// The tenants.
pub(super) fn tenants(specs: &[TenantSpec]) -> Vec<Tenant> {
    specs.iter().map(tenant).collect()
}

fn tenant(spec: &TenantSpec) -> Tenant {
    let mut limits: Vec<Limit> = spec.limits.iter().map(limit).collect();
    limits.sort_by_key(|limit| limit.model == "*");
    Tenant {
        name: spec.head.name.clone(),
        key_hashes: spec.api_key_hashes.iter().filter_map(|hex| digest(hex)).collect(),
        jwt: spec.jwt.as_ref().map(|jwt| JwtClaim {
            issuer: jwt.issuer.clone(),
            claim: jwt.tenant_claim.clone(),
            value: jwt.tenant_value.clone(),
        }),
        strip_key: spec.strip_key,
        fairness_id: spec.inject.fairness_id.clone(),
        objective: spec.inject.objective.clone(),
        tier: spec.inject.tier.clone(),
        limits,
        accounting: match spec.accounting.exact_disconnects {
            true => Accounting::Exact,
            false => Accounting::Generated,
        },
    }
}

fn limit(limits: &Limits) -> Limit {
    Limit {
        model: limits.model.clone(),
        rpm: limits.rpm,
        tpm: limits.tpm,
        concurrency: limits.concurrency,
        inflight_tokens: limits.inflight_tokens,
        max_completion_tokens_default: limits.max_completion_tokens_default,
        max_completion_tokens_cap: limits.max_completion_tokens_cap,
    }
}

/// The bytes of 64 hex digits.
fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(n * 2..n * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}
