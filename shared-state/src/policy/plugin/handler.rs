//! Profile handlers and their deciders: which profiles run for a request.

use super::parameters::Parameters;
use super::{Kind, Plugin, PluginError, References};
use serde::{Deserialize, Serialize};

/// A profile handler as configured: profiles and deciders by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileHandler {
    /// `single-profile-handler`: there is exactly one profile.
    Single,
    /// `header-profile-handler`.
    Header {
        /// In lower case. Default: `epp-profile`.
        header: String,
        /// Profile of a request without the header. Default: `decode`.
        default_profile: String,
    },
    /// `disagg-profile-handler`, and the deprecated `pd-profile-handler`.
    Disagg(DisaggNames),
    /// The deprecated `data-parallel-profile-handler`: one profile; the port is told in a header.
    DataParallel {
        /// Port of the destination. Default: 8000.
        primary_port: u16,
    },
}

/// Parameters of `disagg-profile-handler`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisaggNames {
    /// `stageOrder: prefill-first`; the default is decode-first.
    pub prefill_first: bool,
    /// Name of the decode profile. Default: `decode`.
    pub decode_profile: String,
    /// Name of the prefill profile. Default: `prefill`.
    pub prefill_profile: String,
    /// Name of the encode profile. Default: `encode`.
    pub encode_profile: String,
    /// Instance that decides on prefill elsewhere; `None`: never.
    pub prefill_decider: Option<String>,
    /// Instance that decides on encoding elsewhere; `None`: never.
    pub encode_decider: Option<String>,
    /// `primaryPort` of `pd-profile-handler`. Default: none.
    pub primary_port: Option<u16>,
}

/// Whether a stage runs elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// `always-disagg-pd-decider`.
    Always,
    /// `prefix-based-pd-decider`.
    PrefixBased {
        /// Prompt tokens that the decode endpoint lacks, at least; 0 (the default): never.
        non_cached_tokens: u64,
        /// Prompt tokens, at least. Default: 0.
        prompt_tokens: u64,
    },
    /// `always-disagg-multimodal-decider`: whenever there is an image, sound or video.
    Multimodal,
}

pub(super) fn header(p: &Parameters<'_>) -> Result<ProfileHandler, PluginError> {
    Ok(ProfileHandler::Header {
        header: p.text("headerName")?.unwrap_or("EPP-Profile").to_lowercase(),
        default_profile: p.text_or("defaultProfile", "decode")?,
    })
}

pub(super) fn data_parallel(p: &Parameters<'_>) -> Result<ProfileHandler, PluginError> {
    let primary_port = p.port("primaryPort")?.unwrap_or(8000);
    Ok(ProfileHandler::DataParallel { primary_port })
}

/// The deprecated flat form of `disagg-profile-handler`'s parameters.
const FLAT: [&str; 6] = [
    "decodeProfile",
    "prefillProfile",
    "encodeProfile",
    "prefillDeciderPluginName",
    "deciderPluginName",
    "encodeDeciderPluginName",
];

pub(super) fn disagg(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<ProfileHandler, PluginError> {
    let order = p.text("stageOrder")?.unwrap_or("decode-first");
    let order: String = order.to_lowercase().chars().filter(|c| !"-_".contains(*c)).collect();
    let prefill_first = match order.as_str() {
        "decodefirst" | "decode" => false,
        "prefillfirst" | "prefill" => true,
        _ => return Err(p.refuse("stageOrder", "`decode-first` or `prefill-first`")),
    };
    let flat = FLAT.iter().find(|name| p.has(name));
    let nested = ["profiles", "deciders"].iter().find(|name| p.has(name));
    if let Some((flat, nested)) = flat.zip(nested) {
        let what = format!("no `{flat}` beside `{nested}`: one form of the parameters only");
        return Err(p.refuse(flat, what));
    }
    let name = |object: &Parameters<'_>, name| Ok(object.text(name)?.map(str::to_owned));
    let (profiles, deciders) = if flat.is_some() {
        references.remark("flat parameters are deprecated; use `profiles` and `deciders`");
        for name in ["prefillDeciderPluginName", "encodeDeciderPluginName", "deciderPluginName"] {
            references.add(p, name, Kind::Decider)?;
        }
        let prefill = name(p, "prefillDeciderPluginName")?.or(name(p, "deciderPluginName")?);
        (
            [name(p, "decodeProfile")?, name(p, "prefillProfile")?, name(p, "encodeProfile")?],
            [prefill, name(p, "encodeDeciderPluginName")?],
        )
    } else {
        let profiles = p.object("profiles", &["decode", "prefill", "encode"])?;
        let deciders = p.object("deciders", &["prefill", "encode"])?;
        references.add(&deciders, "prefill", Kind::Decider)?;
        references.add(&deciders, "encode", Kind::Decider)?;
        (
            [name(&profiles, "decode")?, name(&profiles, "prefill")?, name(&profiles, "encode")?],
            [name(&deciders, "prefill")?, name(&deciders, "encode")?],
        )
    };
    let [decode, prefill, encode] = profiles;
    let [prefill_decider, encode_decider] = deciders;
    if prefill_first && prefill_decider.is_some() {
        let at = if flat.is_some() { "prefillDeciderPluginName" } else { "deciders" };
        return Err(p.refuse(at, "no prefill decider with `stageOrder: prefill-first`"));
    }
    Ok(ProfileHandler::Disagg(DisaggNames {
        prefill_first,
        decode_profile: decode.unwrap_or_else(|| "decode".into()),
        prefill_profile: prefill.unwrap_or_else(|| "prefill".into()),
        encode_profile: encode.unwrap_or_else(|| "encode".into()),
        prefill_decider,
        encode_decider,
        primary_port: None,
    }))
}

pub(super) fn pd(
    p: &Parameters<'_>,
    references: &mut References,
) -> Result<ProfileHandler, PluginError> {
    references.add(p, "prefixMatchInfoProducerName", Kind::PrefixProducer)?;
    for name in ["prefixPluginType", "prefixPluginName"] {
        if p.text(name)?.is_some() {
            references.remark(format!("`{name}` means nothing; leave it out"));
        }
    }
    let decider = p.text_or("deciderPluginName", "prefix-based-pd-decider")?;
    references.add_name("deciderPluginName", &decider, Kind::Decider);
    Ok(ProfileHandler::Disagg(DisaggNames {
        prefill_first: false,
        decode_profile: p.text_or("decodeProfile", "decode")?,
        prefill_profile: p.text_or("prefillProfile", "prefill")?,
        encode_profile: String::new(),
        prefill_decider: Some(decider),
        encode_decider: None,
        primary_port: p.port("primaryPort")?,
    }))
}

pub(super) fn prefix_based_decider(p: &Parameters<'_>) -> Result<Decider, PluginError> {
    Ok(Decider::PrefixBased {
        non_cached_tokens: p.count("nonCachedTokens", 0, 0)?,
        prompt_tokens: p.count("promptTokens", 0, 0)?,
    })
}

pub(super) const DISAGG: [&str; 9] = [
    "stageOrder",
    "profiles",
    "deciders",
    "decodeProfile",
    "prefillProfile",
    "encodeProfile",
    "prefillDeciderPluginName",
    "deciderPluginName",
    "encodeDeciderPluginName",
];

/// `disagg-headers-handler`: the profile handler writes these headers by itself.
pub(super) fn headers(p: &Parameters<'_>) -> Result<Plugin, PluginError> {
    p.text("prefillProfile")?;
    p.text("encodeProfile")?;
    Ok(Plugin::HeaderWriter)
}
