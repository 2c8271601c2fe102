//! `TenantQuota`: who a tenant is, what is said of it to the picker, what it may use, and how it is accounted for.

use super::document::Document;
use super::error::{Issue, Problem};
use super::object::{self, Fault, Head};
use serde::Deserialize;
use serde_saphyr::Spanned;

/// Tenant that stands for everybody without a known key: it needs no identity.
pub const ANONYMOUS: &str = "anonymous";
/// Key hashes, claims and limits of a tenant at most.
const MAX_ENTRIES: usize = 256;

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSpec {
    /// Its name.
    pub head: Head,
    /// SHA-256 of its API keys, in lower-case hex.
    pub api_key_hashes: Vec<String>,
    /// The engine does not get the key.
    pub strip_key: bool,
    /// Claims of its tokens.
    pub jwt: Option<JwtClaims>,
    /// What the picker is told of its requests.
    pub inject: Inject,
    /// Limits by model; the first that fits counts, `*` fits all.
    pub limits: Vec<Limits>,
    /// How it is accounted for.
    pub accounting: Accounting,
}

/// `identity.jwtClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct JwtClaims {
    /// `iss` of the token.
    pub issuer: String,
    /// Name of the claim.
    pub tenant_claim: String,
    /// Its value for this tenant.
    pub tenant_value: String,
}

/// `inject`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inject {
    /// Fairness ID; the tenant's name if not given.
    pub fairness_id: String,
    /// Name of an `InferenceObjective`.
    pub objective: Option<String>,
    /// `x-tenant-tier`, for routes.
    pub tier: Option<String>,
    /// Line of the file that the objective is named at.
    pub objective_line: u64,
}

/// Limits for a model. What is `None` is not limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The model that the client asks for, or `*`.
    pub model: String,
    /// Requests a minute.
    pub rpm: Option<u64>,
    /// Tokens a minute, input and output.
    pub tpm: Option<u64>,
    /// Requests at once.
    pub concurrency: Option<u64>,
    /// Tokens that requests under way may have together.
    pub inflight_tokens: Option<u64>,
    /// Output tokens reserved for a request that does not limit them.
    pub max_completion_tokens_default: Option<u64>,
    /// Output tokens reserved for a request at most.
    pub max_completion_tokens_cap: Option<u64>,
}

/// `accounting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accounting {
    /// `streamDisconnect: bill_exact`: the engine is asked for usage in every chunk. Default: `bill_generated`.
    pub exact_disconnects: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    identity: Option<RawIdentity>,
    inject: Option<RawInject>,
    #[serde(default)]
    limits: Option<Vec<RawLimits>>,
    accounting: Option<RawAccounting>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawIdentity {
    #[serde(default)]
    api_key_hashes: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    strip_key: bool,
    jwt_claims: Option<Spanned<JwtClaims>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawInject {
    fairness_id: Option<Spanned<String>>,
    objective: Option<Spanned<String>>,
    tier: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawLimits {
    model: Spanned<String>,
    rpm: Option<Spanned<i64>>,
    tpm: Option<Spanned<i64>>,
    concurrency: Option<Spanned<i64>>,
    inflight_tokens: Option<Spanned<i64>>,
    max_completion_tokens_default: Option<Spanned<i64>>,
    max_completion_tokens_cap: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawAccounting {
    pre_debit: Option<Spanned<String>>,
    settle_on: Option<Spanned<String>>,
    stream_disconnect: Option<Spanned<String>>,
}

/// A key's hash with its line of the file, to find the same key at two tenants.
pub(super) type Hashes = Vec<(String, u64)>;

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub(super) fn read(document: &Document<'_>) -> Result<(TenantSpec, Hashes), Issue> {
    let (head, raw) = object::read::<Raw>(document)?;
    let (mut tenant, mut hashes) =
        compile(head, raw).map_err(|(line, problem)| document.issue(line, problem))?;
    tenant.inject.objective_line = document.line(tenant.inject.objective_line);
    for (_, line) in &mut hashes {
        *line = document.line(*line);
    }
    Ok((tenant, hashes))
}

fn compile(head: Head, raw: Raw) -> Result<(TenantSpec, Hashes), Fault> {
    let identity = raw.identity.unwrap_or(RawIdentity {
        api_key_hashes: None,
        strip_key: false,
        jwt_claims: None,
    });
    let mut hashes = Hashes::new();
    for hash in identity.api_key_hashes.unwrap_or_default() {
        let line = hash.referenced.line();
        let text = hash.value.to_ascii_lowercase();
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            // Not shown: it may be the key itself, put here by mistake.
            let problem =
                Problem::bad("apiKeyHashes", "(not shown)", "SHA-256 of a key as 64 hex digits");
            return Err((line, problem));
        }
        hashes.push((text, line));
    }
    if let Some(jwt) = &identity.jwt_claims {
        let claims = &jwt.value;
        if claims.issuer.is_empty()
            || claims.tenant_claim.is_empty()
            || claims.tenant_value.is_empty()
        {
            let expected = "an issuer, a claim and its value, none of them empty";
            return Err((jwt.referenced.line(), Problem::bad("jwtClaims", "", expected)));
        }
    }
    if hashes.is_empty() && identity.jwt_claims.is_none() && head.name != ANONYMOUS {
        return Err((1, Problem::MissingField("spec.identity.apiKeyHashes or jwtClaims")));
    }
    let raw_limits = raw.limits.unwrap_or_default();
    if hashes.len() > MAX_ENTRIES || raw_limits.len() > MAX_ENTRIES {
        let problem = Problem::TooMany { what: "keys or limits of a tenant", limit: MAX_ENTRIES };
        return Err((1, problem));
    }
    let mut limits: Vec<Limits> = Vec::new();
    for raw in raw_limits {
        let line = raw.model.referenced.line();
        let limit = limit(raw)?;
        if limits.iter().any(|earlier| earlier.model == limit.model) {
            return Err((line, Problem::bad("model", &limit.model, "each model once")));
        }
        limits.push(limit);
    }
    let inject = inject(raw.inject, &head.name)?;
    let accounting = raw.accounting.map_or(Ok(Accounting::default()), accounting)?;
    let api_key_hashes = hashes.iter().map(|(hash, _)| hash.clone()).collect();
    let strip_key = identity.strip_key;
    let jwt = identity.jwt_claims.map(|jwt| jwt.value);
    Ok((TenantSpec { head, api_key_hashes, strip_key, jwt, inject, limits, accounting }, hashes))
}

fn inject(raw: Option<RawInject>, tenant: &str) -> Result<Inject, Fault> {
    let raw = raw.unwrap_or(RawInject { fairness_id: None, objective: None, tier: None });
    let fairness_id = match raw.fairness_id {
        Some(id) => object::checked_name("fairnessId", id)?,
        None => tenant.to_owned(),
    };
    let objective_line = raw.objective.as_ref().map_or(0, |name| name.referenced.line());
    let objective =
        raw.objective.map(|name| object::checked_name("objective", name)).transpose()?;
    let tier = raw.tier.map(|tier| object::checked_name("tier", tier)).transpose()?;
    Ok(Inject { fairness_id, objective, tier, objective_line })
}

fn limit(raw: RawLimits) -> Result<Limits, Fault> {
    if raw.model.value.is_empty() {
        let problem = Problem::bad("model", "", "a model's name, or `*` for all others");
        return Err((raw.model.referenced.line(), problem));
    }
    Ok(Limits {
        model: raw.model.value,
        rpm: amount("rpm", raw.rpm)?,
        tpm: amount("tpm", raw.tpm)?,
        concurrency: amount("concurrency", raw.concurrency)?,
        inflight_tokens: amount("inflightTokens", raw.inflight_tokens)?,
        max_completion_tokens_default: amount(
            "maxCompletionTokensDefault",
            raw.max_completion_tokens_default,
        )?,
        max_completion_tokens_cap: amount("maxCompletionTokensCap", raw.max_completion_tokens_cap)?,
    })
}

/// A limit. 0 would be a tenant that may do nothing: left out on purpose, not by a slip.
fn amount(field: &'static str, number: Option<Spanned<i64>>) -> Result<Option<u64>, Fault> {
    let Some(number) = number else { return Ok(None) };
    match u64::try_from(number.value) {
        Ok(amount @ 1..=1_000_000_000_000) => Ok(Some(amount)),
        _ => {
            let expected = "a number from 1 to 1000000000000, or leave it out for no limit";
            let problem = Problem::bad(field, &number.value.to_string(), expected);
            Err((number.referenced.line(), problem))
        }
    }
}

fn accounting(raw: RawAccounting) -> Result<Accounting, Fault> {
    one_of("preDebit", raw.pre_debit, &["input_plus_max_output"], "`input_plus_max_output`")?;
    one_of("settleOn", raw.settle_on, &["usage_or_chunk_count"], "`usage_or_chunk_count`")?;
    let disconnect = one_of(
        "streamDisconnect",
        raw.stream_disconnect,
        &["bill_generated", "bill_exact"],
        "`bill_generated` or `bill_exact`",
    )?;
    Ok(Accounting { exact_disconnects: disconnect.as_deref() == Some("bill_exact") })
}

fn one_of(
    field: &'static str,
    value: Option<Spanned<String>>,
    valid: &[&str],
    expected: &'static str,
) -> Result<Option<String>, Fault> {
    match value {
        Some(value) if !valid.contains(&value.value.as_str()) => {
            Err((value.referenced.line(), Problem::bad(field, &value.value, expected)))
        }
        value => Ok(value.map(|value| value.value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse_as(name: &str, spec: &str) -> Result<TenantSpec, String> {
        let text =
            format!("apiVersion: x\nkind: TenantQuota\nmetadata: {{name: {name}}}\nspec:\n{spec}");
        read(&Document::new(Path::new("t.yaml"), 0, &text))
            .map(|(tenant, _)| tenant)
            .map_err(|issue| issue.to_string())
    }

    fn parse(spec: &str) -> Result<TenantSpec, String> {
        parse_as("t", spec)
    }

    fn key() -> String {
        format!("  identity: {{apiKeyHashes: [{}]}}\n", "aB".repeat(32))
    }

    #[test]
    fn a_tenant_with_everything() {
        let spec = format!(
            "  identity:\n    apiKeyHashes: [{}]\n    stripKey: true\n    jwtClaims: {{issuer: i, tenantClaim: c, tenantValue: v}}\n  \
               inject: {{fairnessId: f, objective: o, tier: gold}}\n  limits:\n  \
               - {{model: m, rpm: 1, tpm: 2, concurrency: 3, inflightTokens: 4, maxCompletionTokensDefault: 5, maxCompletionTokensCap: 6}}\n  \
               - model: '*'\n  accounting: {{preDebit: input_plus_max_output, settleOn: usage_or_chunk_count, streamDisconnect: bill_exact}}\n",
            "aB".repeat(32)
        );
        let tenant = parse(&spec).unwrap();
        assert_eq!(tenant.api_key_hashes, ["ab".repeat(32)]);
        assert_eq!(tenant.jwt.unwrap().tenant_claim, "c");
        assert_eq!((tenant.inject.fairness_id.as_str(), tenant.inject.objective_line), ("f", 9));
        let limits = &tenant.limits[0];
        let all = [limits.rpm, limits.tpm, limits.concurrency, limits.inflight_tokens];
        assert_eq!(all, [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(
            (limits.max_completion_tokens_default, limits.max_completion_tokens_cap),
            (Some(5), Some(6))
        );
        assert_eq!((tenant.limits[1].model.as_str(), tenant.limits[1].rpm), ("*", None));
        assert!(tenant.accounting.exact_disconnects);
    }

    #[test]
    fn what_is_left_out_is_not_limited() {
        let tenant = parse(&key()).unwrap();
        assert_eq!((tenant.inject.fairness_id.as_str(), tenant.inject.objective), ("t", None));
        assert!(tenant.limits.is_empty() && !tenant.accounting.exact_disconnects);
        assert!(parse_as(ANONYMOUS, "  {}\n").is_ok());
    }

    #[test]
    fn each_fault_names_its_line() {
        let key = key();
        let cases = [
            (
                "  {}\n".to_owned(),
                "t.yaml:1: field `spec.identity.apiKeyHashes or jwtClaims` is missing",
            ),
            (
                "  identity: {apiKeyHashes: [sk-secret]}\n".into(),
                "t.yaml:5: `apiKeyHashes` is `(not shown)`",
            ),
            (
                "  identity: {jwtClaims: {issuer: i, tenantClaim: '', tenantValue: v}}\n".into(),
                "t.yaml:5: `jwtClaims`",
            ),
            (
                format!("{key}  limits: [{{model: m, rps: 1}}]\n"),
                "t.yaml:6: unknown field `rps`; did you mean `rpm`?",
            ),
            (format!("{key}  limits: [{{model: m, rpm: 0}}]\n"), "t.yaml:6: `rpm` is `0`"),
            (format!("{key}  limits: [{{model: m, tpm: -1}}]\n"), "t.yaml:6: `tpm` is `-1`"),
            (
                format!("{key}  limits: [{{model: m}}, {{model: m}}]\n"),
                "t.yaml:6: `model` is `m`; give each model once",
            ),
            (format!("{key}  limits: [{{rpm: 1}}]\n"), "t.yaml:6: field `model` is missing"),
            (
                format!("{key}  accounting: {{streamDisconnect: free}}\n"),
                "t.yaml:6: `streamDisconnect` is `free`",
            ),
            (format!("{key}  accounting: {{preDebit: none}}\n"), "t.yaml:6: `preDebit` is `none`"),
            (format!("{key}  inject: {{fairnessId: ''}}\n"), "t.yaml:6: `fairnessId` is ``"),
        ];
        for (spec, message) in cases {
            let shown = parse(&spec).unwrap_err();
            assert!(shown.starts_with(message), "{spec}\n{shown}");
            assert!(!shown.contains("sk-secret"), "{shown}");
        }
    }
}
