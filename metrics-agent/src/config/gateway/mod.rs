//! Objects of Gateway API and its inference extension: pools, routes, rewrites, objectives.

pub mod objective;
pub mod pool;
pub mod precedence;
pub mod rewrite;
pub mod route;
pub mod route_match;

use super::error::Problem;
use super::object::Fault;
use serde::Deserialize;
use serde_saphyr::Spanned;

/// Groups that `InferencePool` is of.
const POOL_GROUPS: &[&str] = &["inference.networking.k8s.io", "inference.networking.x-k8s.io"];

/// A `poolRef` as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoolRef {
    group: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    name: Spanned<String>,
}

/// A pool's name with the line that it stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRef {
    /// Name, in the namespace of whoever refers to it.
    pub name: String,
    /// Line of the file.
    pub line: u64,
}

impl RawPoolRef {
    fn checked(self) -> Result<PoolRef, Fault> {
        if let Some(group) = self.group.filter(|group| !POOL_GROUPS.contains(&group.value.as_str()))
        {
            let problem = Problem::bad("group", &group.value, "`inference.networking.k8s.io`");
            return Err((group.referenced.line(), problem));
        }
        if let Some(kind) = self.kind.filter(|kind| kind.value != "InferencePool") {
            let problem = Problem::bad("kind", &kind.value, "`InferencePool`");
            return Err((kind.referenced.line(), problem));
        }
        Ok(PoolRef { line: self.name.referenced.line(), name: self.name.value })
    }
}

/// A number in a range.
fn ranged(
    field: &'static str,
    number: &Spanned<i64>,
    range: std::ops::RangeInclusive<i64>,
    expected: &'static str,
) -> Result<i64, Fault> {
    if range.contains(&number.value) {
        return Ok(number.value);
    }
    Err((number.referenced.line(), Problem::bad(field, &number.value.to_string(), expected)))
}
