//! The document as it is written.
//!
//! Format: `apix/config/v1alpha1/endpointpickerconfig_types.go` of llm-d-router.

use crate::config::object::Metadata;
use crate::config::tree::Tree;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

/// All of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    pub(super) metadata: Option<Metadata>,
    pub(super) feature_gates: Option<Vec<Spanned<String>>>,
    pub(super) plugins: Option<Vec<Spanned<RawPlugin>>>,
    pub(super) scheduling_profiles: Option<Vec<Spanned<RawProfile>>>,
    pub(super) data_layer: Option<RawDataLayer>,
    pub(super) flow_control: Option<Spanned<RawFlowControl>>,
    pub(super) request_handler: Option<RequestHandler>,
    pub(super) saturation_detector: Option<Reference>,
    pub(super) parser: Option<Reference>,
}

/// A plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPlugin {
    pub(super) name: Option<Spanned<String>>,
    #[serde(rename = "type")]
    pub(super) plugin_type: Option<Spanned<String>>,
    pub(super) parameters: Option<Tree>,
}

/// A scheduling profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    pub(super) name: Option<Spanned<String>>,
    pub(super) plugins: Option<Vec<WeightedReference>>,
}

/// A plugin of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WeightedReference {
    pub(super) plugin_ref: Spanned<String>,
    pub(super) weight: Option<Spanned<f64>>,
}

/// A plugin's name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Reference {
    pub(super) plugin_ref: Spanned<String>,
}

/// `requestHandler`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestHandler {
    pub(super) parsers: Option<Vec<Reference>>,
}

/// `dataLayer`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawDataLayer {
    pub(super) inject_defaults: Option<Spanned<bool>>,
    pub(super) sources: Option<Vec<RawSource>>,
    pub(super) discovery: Option<Reference>,
    pub(super) peer_discovery: Option<Spanned<IgnoredAny>>,
    pub(super) cross_replica_syncer_plugin_ref: Option<Spanned<IgnoredAny>>,
    pub(super) cross_replica_sync_interval: Option<Spanned<IgnoredAny>>,
}

/// A source with what reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSource {
    pub(super) plugin_ref: Spanned<String>,
    pub(super) extractors: Option<Vec<Reference>>,
}

/// `flowControl`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawFlowControl {
    pub(super) max_bytes: Option<Spanned<String>>,
    pub(super) max_requests: Option<Spanned<String>>,
    #[serde(rename = "defaultRequestTTL")]
    pub(super) default_request_ttl: Option<Spanned<String>>,
    #[serde(rename = "noEndpointRequestTTL")]
    pub(super) no_endpoint_request_ttl: Option<Spanned<String>>,
    pub(super) default_priority_band: Option<RawBand>,
    pub(super) default_negative_priority_band: Option<RawBand>,
    pub(super) priority_bands: Option<Vec<Spanned<RawBand>>>,
    pub(super) usage_limit_policy_plugin_ref: Option<Spanned<String>>,
    pub(super) saturation_detector: Option<Reference>,
    pub(super) enable_eviction: Option<bool>,
}

/// A priority band.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawBand {
    pub(super) priority: Option<Spanned<i64>>,
    pub(super) max_bytes: Option<Spanned<String>>,
    pub(super) max_requests: Option<Spanned<String>>,
    pub(super) fairness_policy_ref: Option<Spanned<String>>,
    pub(super) ordering_policy_ref: Option<Spanned<String>>,
}
