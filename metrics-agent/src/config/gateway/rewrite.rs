//! `InferenceModelRewrite`: what the model name of a request becomes on its way to the engine.

use super::{PoolRef, RawPoolRef, ranged};
use crate::config::document::Document;
use crate::config::error::{Issue, Problem};
use crate::config::object::{self, Fault, Head};
use serde::Deserialize;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::routing::{RewriteRule, RewriteTarget};

/// Rules of one object, and matches and targets of one rule, at most.
const MAX_ENTRIES: usize = 64;

/// One rewrite.
#[derive(Debug, Clone, PartialEq)]
pub struct RewriteSpec {
    /// Its name.
    pub head: Head,
    /// Its pool.
    pub pool: PoolRef,
    /// Its rules, in order.
    pub rules: Vec<RewriteRule>,
    /// What is strange, but allowed.
    pub warnings: Vec<Issue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    pool_ref: RawPoolRef,
    rules: Spanned<Vec<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    matches: Option<Spanned<Vec<RawMatch>>>,
    targets: Spanned<Vec<RawTarget>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatch {
    model: Option<RawModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    #[serde(rename = "type")]
    kind: Option<Spanned<String>>,
    value: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawTarget {
    weight: Option<Spanned<i64>>,
    model_rewrite: Spanned<String>,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<RewriteSpec, Issue> {
    let (head, raw) = object::read::<Raw>(document)?;
    let mut warnings = Vec::new();
    let mut warn = |line, text: &str| {
        warnings.push(document.issue(line, Problem::Conflict(text.to_owned())));
    };
    let checked = compile(raw, &mut warn);
    let (pool, rules) = checked.map_err(|(line, problem)| document.issue(line, problem))?;
    let pool = PoolRef { line: document.line(pool.line), ..pool };
    Ok(RewriteSpec { head, pool, rules, warnings })
}

fn compile(
    raw: Raw,
    warn: &mut impl FnMut(u64, &str),
) -> Result<(PoolRef, Vec<RewriteRule>), Fault> {
    bounded("rules", 1, &raw.rules)?;
    let mut rules = Vec::new();
    for rule in raw.rules.value {
        rules.push(compile_rule(rule, warn)?);
    }
    Ok((raw.pool_ref.checked()?, rules))
}

fn compile_rule(raw: RawRule, warn: &mut impl FnMut(u64, &str)) -> Result<RewriteRule, Fault> {
    bounded("targets", 1, &raw.targets)?;
    let mut models = Vec::new();
    let mut generic = true;
    if let Some(matches) = raw.matches {
        bounded("matches", 0, &matches)?;
        let line = matches.referenced.line();
        generic = matches.value.is_empty();
        for model in matches.value.into_iter().filter_map(|entry| entry.model) {
            if let Some(kind) = model.kind.filter(|kind| kind.value != "Exact") {
                return Err((kind.referenced.line(), Problem::bad("type", &kind.value, "`Exact`")));
            }
            models.push(model.value.value);
        }
        if !generic && models.is_empty() {
            warn(
                line,
                "no match of this rule names a model, so it is never used; give `model` or no `matches` at all",
            );
        }
    }
    let line = raw.targets.referenced.line();
    let mut targets = Vec::new();
    for target in raw.targets.value {
        let name = target.model_rewrite;
        if name.value.is_empty() {
            let problem = Problem::bad("modelRewrite", "", "the name of a model");
            return Err((name.referenced.line(), problem));
        }
        let weight = target
            .weight
            .map(|weight| ranged("weight", &weight, 1..=1_000_000, "a number from 1 to 1000000"));
        let weight = weight.transpose()?.and_then(|weight| u32::try_from(weight).ok());
        targets.push(RewriteTarget { model: name.value, weight });
    }
    let weighted = targets.iter().filter(|target| target.weight.is_some()).count();
    if weighted > 0 && weighted < targets.len() {
        warn(
            line,
            "targets without a weight are never chosen beside those that have one; give all a weight or none",
        );
    }
    Ok(RewriteRule { models, generic, targets })
}

fn bounded<T>(field: &'static str, least: usize, list: &Spanned<Vec<T>>) -> Result<(), Fault> {
    let n = list.value.len();
    if (least..=MAX_ENTRIES).contains(&n) {
        return Ok(());
    }
    let expected = if least == 0 { "at most 64 entries" } else { "1 to 64 entries" };
    Err((list.referenced.line(), Problem::bad(field, &format!("{n} entries"), expected)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(rules: &str) -> Result<RewriteSpec, String> {
        let text = format!(
            "apiVersion: x\nkind: InferenceModelRewrite\nmetadata: {{name: r}}\nspec:\n  poolRef: {{name: p}}\n  rules:\n{rules}"
        );
        read(&Document::new(Path::new("r.yaml"), 0, &text)).map_err(|issue| issue.to_string())
    }

    #[test]
    fn rules_are_exact_or_generic() {
        let rules = "  - matches:\n    - model: {type: Exact, value: a}\n    - model: {value: b}\n    \
                     targets:\n    - {modelRewrite: a-1, weight: 90}\n    - {modelRewrite: a-2, weight: 10}\n  \
                     - targets: [{modelRewrite: rest}]\n";
        let rewrite = parse(rules).unwrap();
        let [exact, generic] = rewrite.rules.as_slice() else { panic!("{rewrite:?}") };
        assert_eq!(
            (exact.models.as_slice(), exact.generic),
            (&["a".to_owned(), "b".to_owned()][..], false)
        );
        assert_eq!(exact.targets[1], RewriteTarget { model: "a-2".into(), weight: Some(10) });
        assert!(generic.generic && generic.models.is_empty());
        assert_eq!(generic.targets[0].weight, None);
        assert!(rewrite.warnings.is_empty());
    }

    #[test]
    fn what_llm_d_would_pass_over_is_a_warning() {
        let unused = parse("  - matches: [{}]\n    targets: [{modelRewrite: x}]\n").unwrap();
        assert!(!unused.rules[0].generic);
        assert!(
            unused.warnings[0]
                .to_string()
                .starts_with("r.yaml:7: no match of this rule names a model")
        );
        let mixed =
            parse("  - targets: [{modelRewrite: x, weight: 1}, {modelRewrite: y}]\n").unwrap();
        assert!(mixed.warnings[0].to_string().starts_with("r.yaml:7: targets without a weight"));
    }

    #[test]
    fn each_fault_names_its_line() {
        let cases = [
            ("  - targets: []\n", "r.yaml:7: `targets` is `0 entries`"),
            ("   []\n", "r.yaml:7: `rules` is `0 entries`"),
            (
                "  - matches: [{model: {type: Regex, value: a}}]\n    targets: [{modelRewrite: x}]\n",
                "r.yaml:7: `type` is `Regex`",
            ),
            ("  - targets:\n    - modelRewrite: x\n      weight: 0\n", "r.yaml:9: `weight` is `0`"),
            ("  - targets:\n    - modelRewrite: ''\n", "r.yaml:8: `modelRewrite` is ``"),
            (
                "  - targets:\n    - modelrewrite: x\n",
                "r.yaml:8: unknown field `modelrewrite`; did you mean `modelRewrite`?",
            ),
        ];
        for (rules, message) in cases {
            let shown = parse(rules).unwrap_err();
            assert!(shown.starts_with(message), "{rules}\n{shown}");
        }
    }
}
