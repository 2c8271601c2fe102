//! An entry of the file, read strictly: a key that nobody knows would be a case that nobody checks.

use serde_json::{Map, Value};
use std::fmt;

/// Why an entry fails.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which part of the work an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    C,
    D,
    Later,
}

/// An entry.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) part: Part,
    pub(crate) plugin: String,
    pub(crate) params: Value,
    pub(crate) input: Value,
    pub(crate) expected: Value,
}

impl Entry {
    pub(crate) fn read(value: &Value) -> Result<Self, Failure> {
        let fields = Fields::new(
            value,
            &["part", "plugin", "params", "input", "expected", "source_file", "origin", "note"],
        )?;
        let part = match fields.get("part")?.as_str() {
            Some("C") => Part::C,
            Some("D") => Part::D,
            Some("later") => Part::Later,
            other => return Err(Failure::new(format!("no such part: {other:?}"))),
        };
        let plugin = fields.get("plugin")?.as_str().ok_or_else(|| Failure::new("plugin: text"))?;
        Ok(Self {
            part,
            plugin: plugin.to_owned(),
            params: fields.get("params")?.clone(),
            input: fields.get("input")?.clone(),
            expected: fields.get("expected")?.clone(),
        })
    }

    /// The input, which may have these keys.
    pub(crate) fn input(&self, known: &[&str]) -> Result<Fields<'_>, Failure> {
        Fields::new(&self.input, known)
    }

    /// What is expected, which may have these keys.
    pub(crate) fn expected(&self, known: &[&str]) -> Result<Fields<'_>, Failure> {
        Fields::new(&self.expected, known)
    }
}

/// An object of which every key is known.
#[derive(Debug)]
pub(crate) struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub(crate) fn new(value: &'a Value, known: &[&str]) -> Result<Self, Failure> {
        let map = value.as_object().ok_or_else(|| Failure::new(format!("no object: {value}")))?;
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Failure::new(format!("unknown key `{key}`"))),
            None => Ok(Self(map)),
        }
    }

    /// The value, which must be there.
    pub(crate) fn get(&self, key: &str) -> Result<&'a Value, Failure> {
        self.0.get(key).ok_or_else(|| Failure::new(format!("`{key}` is missing")))
    }

    /// The value, unless it is missing or `null`.
    pub(crate) fn optional(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn number(&self, key: &str) -> Result<f64, Failure> {
        let number = self.get(key)?.as_f64();
        number.ok_or_else(|| Failure::new(format!("`{key}` must be a number")))
    }

    pub(crate) fn text(&self, key: &str) -> Result<&'a str, Failure> {
        self.get(key)?.as_str().ok_or_else(|| Failure::new(format!("`{key}` must be text")))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Failure> {
        self.get(key)?.as_bool().ok_or_else(|| Failure::new(format!("`{key}` must be a bool")))
    }

    pub(crate) fn list(&self, key: &str) -> Result<&'a Vec<Value>, Failure> {
        self.get(key)?.as_array().ok_or_else(|| Failure::new(format!("`{key}` must be a list")))
    }
}
