//! Compares what came out with what is expected.

use crate::entry::{Entry, Failure};
use serde_json::Value;
use std::fmt::Debug;
use warmroute_shared_state::policy::plugin;

/// How far a figure may be off if the entry does not say: engines' loads are kept as `f32`.
const TOLERANCE: f64 = 1e-6;

/// Whether the plugin takes its parameters, if that is what the entry asks.
pub(crate) fn configuration(entry: &Entry) -> Option<Result<(), Failure>> {
    let wanted = entry.expected.get("config_error")?;
    let refused = plugin::read(&entry.plugin, &entry.params).is_err();
    let checked = entry.expected(&["config_error"]).and_then(|_| match &entry.input {
        Value::Null => same(&Value::from(refused), wanted),
        input => Err(Failure::new(format!("input of a configuration: {input}"))),
    });
    Some(checked)
}

pub(crate) fn same<T: PartialEq + Debug>(got: &T, expected: &T) -> Result<(), Failure> {
    if got == expected {
        Ok(())
    } else {
        Err(Failure::new(format!("expected {expected:?}, got {got:?}")))
    }
}

/// The figures of `key`, within `tolerance`.
pub(crate) fn figures(entry: &Entry, key: &str, got: &[f64]) -> Result<(), Failure> {
    let expected = entry.expected(&[key, "tolerance"])?;
    let tolerance = match expected.optional("tolerance") {
        Some(_) => expected.number("tolerance")?,
        None => TOLERANCE,
    };
    let value = expected.get(key)?;
    let wanted: Option<Vec<f64>> = match value {
        Value::Array(list) => list.iter().map(Value::as_f64).collect(),
        one => one.as_f64().map(|one| vec![one]),
    };
    let wanted = wanted.ok_or_else(|| Failure::new(format!("`{key}` must be numbers")))?;
    let near = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= tolerance;
    if got.len() == wanted.len() && got.iter().zip(&wanted).all(near) {
        Ok(())
    } else {
        Err(Failure::new(format!("expected {wanted:?}, got {got:?}")))
    }
}
