//! `InferenceObjective`: a priority with a name, for requests to one pool.

use super::{PoolRef, RawPoolRef, ranged};
use crate::config::document::Document;
use crate::config::error::Issue;
use crate::config::object::{self, Head};
use serde::Deserialize;
use serde_saphyr::Spanned;

/// One objective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectiveSpec {
    /// Its name, which the objective header names.
    pub head: Head,
    /// Its pool.
    pub pool: PoolRef,
    /// 0 if it gives none.
    pub priority: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    priority: Option<Spanned<i64>>,
    pool_ref: RawPoolRef,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<ObjectiveSpec, Issue> {
    let (head, raw) = object::read::<Raw>(document)?;
    let priority = raw.priority.map(|priority| {
        let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
        ranged("priority", &priority, range, "a number of 32 bits")
    });
    let checked = priority.transpose().and_then(|priority| Ok((priority, raw.pool_ref.checked()?)));
    let (priority, pool) = checked.map_err(|(line, problem)| document.issue(line, problem))?;
    let pool = PoolRef { line: document.line(pool.line), ..pool };
    Ok(ObjectiveSpec {
        head,
        pool,
        priority: priority.and_then(|p| i32::try_from(p).ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(spec: &str) -> Result<ObjectiveSpec, String> {
        let text = format!(
            "apiVersion: x\nkind: InferenceObjective\nmetadata: {{name: o}}\nspec:\n{spec}"
        );
        read(&Document::new(Path::new("o.yaml"), 0, &text)).map_err(|issue| issue.to_string())
    }

    #[test]
    fn a_priority_may_be_negative_or_left_out() {
        for (spec, priority) in [("  priority: -10\n", -10), ("", 0), ("  priority: null\n", 0)] {
            let objective = parse(&format!("{spec}  poolRef: {{name: p}}\n")).unwrap();
            assert_eq!((objective.priority, objective.pool.name.as_str()), (priority, "p"));
        }
    }

    #[test]
    fn each_fault_names_its_line() {
        let cases = [
            ("  priority: 1\n", "o.yaml:5: field `poolRef` is missing"),
            (
                "  priority: 3000000000\n  poolRef: {name: p}\n",
                "o.yaml:5: `priority` is `3000000000`",
            ),
            ("  poolRef: {kind: Service, name: p}\n", "o.yaml:5: `kind` is `Service`"),
            ("  poolRef: {group: apps, name: p}\n", "o.yaml:5: `group` is `apps`"),
            (
                "  prioritiy: 1\n  poolRef: {name: p}\n",
                "o.yaml:5: unknown field `prioritiy`; did you mean `priority`?",
            ),
        ];
        for (spec, message) in cases {
            let shown = parse(spec).unwrap_err();
            assert!(shown.starts_with(message), "{spec}\n{shown}");
        }
    }
}
