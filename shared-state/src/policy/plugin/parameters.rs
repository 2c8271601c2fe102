//! Parameters of a plugin instance, read strictly: a name that its type does not know is refused, as is a value of
//! another shape.

use super::nearest::nearest;
use super::{PluginError, parse_duration};
use core::time::Duration;
use serde_json::{Map, Value};

/// One object of parameters. A parameter that is `null` counts as not given, as it does in llm-d.
pub(super) struct Parameters<'a> {
    /// Path of the object, empty for the outermost.
    at: String,
    given: Option<&'a Map<String, Value>>,
}

impl<'a> Parameters<'a> {
    /// The outermost object, which may have these members.
    pub(super) fn new(value: &'a Value, known: &[&'static str]) -> Result<Self, PluginError> {
        Self::object_at(String::new(), value, known)
    }

    fn object_at(
        at: String,
        value: &'a Value,
        known: &[&'static str],
    ) -> Result<Self, PluginError> {
        let given = match value {
            Value::Null => None,
            Value::Object(map) => Some(map),
            _ => return Err(PluginError::Value { at, what: "an object".into() }),
        };
        let object = Self { at, given };
        for name in given.into_iter().flat_map(Map::keys) {
            if !known.contains(&name.as_str()) {
                let nearest = nearest(name, known.iter().copied());
                let nearest = known.iter().copied().find(|known| Some(*known) == nearest);
                return Err(PluginError::UnknownParameter { at: object.path(name), nearest });
            }
        }
        Ok(object)
    }

    /// Path of a member.
    pub(super) fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.given?.get(name).filter(|value| !value.is_null())
    }

    /// Whether it was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// This member's value cannot be; `what` would be right.
    pub(super) fn refuse(&self, name: &str, what: impl Into<String>) -> PluginError {
        PluginError::Value { at: self.path(name), what: what.into() }
    }

    /// A number, if it was given.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.refuse(name, "a number"))
    }

    /// A number that `right` accepts, `what` describing it.
    pub(super) fn number_that(
        &self,
        name: &str,
        default: f64,
        what: &str,
        right: impl FnOnce(f64) -> bool,
    ) -> Result<f64, PluginError> {
        let number = self.number(name)?.unwrap_or(default);
        if right(number) { Ok(number) } else { Err(self.refuse(name, what)) }
    }

    /// A number from 0 to 1.
    pub(super) fn share(&self, name: &str, default: f64) -> Result<f64, PluginError> {
        self.number_that(name, default, "a number from 0 to 1", |n| (0.0..=1.0).contains(&n))
    }

    /// A whole number, if it was given.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let whole = value.as_i64().or_else(|| {
            // YAML writes 1e8 for a whole number, too.
            #[allow(clippy::cast_possible_truncation)]
            value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64)
        });
        whole.map(Some).ok_or_else(|| self.refuse(name, "a whole number"))
    }

    /// A whole number that is not below `least`.
    pub(super) fn count(&self, name: &str, default: u64, least: u64) -> Result<u64, PluginError> {
        let Some(number) = self.integer(name)? else { return Ok(default) };
        let count = u64::try_from(number).ok().filter(|count| *count >= least);
        count.ok_or_else(|| self.refuse(name, format!("a whole number, {least} or more")))
    }

    /// A whole number; one that is not above 0 stands for the default, as in llm-d.
    pub(super) fn count_or(&self, name: &str, default: u64) -> Result<u64, PluginError> {
        let number = self.integer(name)?.and_then(|number| u64::try_from(number).ok());
        Ok(number.filter(|count| *count > 0).unwrap_or(default))
    }

    /// A port, if one above 0 was given.
    pub(super) fn port(&self, name: &str) -> Result<Option<u16>, PluginError> {
        let Some(number) = self.integer(name)? else { return Ok(None) };
        let port = u16::try_from(number).map_err(|_| self.refuse(name, "a port, 1 to 65535"))?;
        Ok((port > 0).then_some(port))
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, PluginError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.refuse(name, "true or false"))
    }

    /// Text that is not empty, if it was given.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.refuse(name, "text"))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Text with a default.
    pub(super) fn text_or(&self, name: &str, default: &str) -> Result<String, PluginError> {
        Ok(self.text(name)?.unwrap_or(default).to_owned())
    }

    /// Text that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&'a str, PluginError> {
        self.text(name)?.ok_or_else(|| self.refuse(name, "text; it must be given"))
    }

    /// One of these words.
    pub(super) fn one_of<T: Copy>(
        &self,
        name: &str,
        default: Option<T>,
        words: &[(&str, T)],
    ) -> Result<T, PluginError> {
        let given = self.text(name)?;
        let found = match given {
            None => default,
            Some(word) => words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value),
        };
        found.ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.refuse(name, words.join(" or "))
        })
    }

    /// A list of texts.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || self.refuse(name, "a list of texts");
        let list = value.as_array().ok_or_else(wrong)?;
        list.iter().map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    }

    /// Texts by name.
    pub(super) fn text_map(&self, name: &str) -> Result<Vec<(String, String)>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || self.refuse(name, "names with text values");
        let map = value.as_object().ok_or_else(wrong)?;
        map.iter()
            .map(|(key, v)| v.as_str().map(|v| (key.clone(), v.to_owned())).ok_or_else(wrong))
            .collect()
    }

    /// Numbers by name.
    pub(super) fn number_map(&self, name: &str) -> Result<Vec<(String, f64)>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || self.refuse(name, "names with numbers");
        let map = value.as_object().ok_or_else(wrong)?;
        map.iter().map(|(key, v)| v.as_f64().map(|v| (key.clone(), v)).ok_or_else(wrong)).collect()
    }

    /// A duration as Go writes it, if it was given.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>, PluginError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let what = "a duration like `200ms` or `1m30s`";
        parse_duration(text).map(Some).ok_or_else(|| self.refuse(name, what))
    }

    /// An object within; one without members if it was not given.
    pub(super) fn object(
        &self,
        name: &str,
        known: &[&'static str],
    ) -> Result<Parameters<'a>, PluginError> {
        Self::object_at(self.path(name), self.get(name).unwrap_or(&Value::Null), known)
    }

    /// A list of objects.
    pub(super) fn objects(
        &self,
        name: &str,
        known: &[&'static str],
    ) -> Result<Vec<Parameters<'a>>, PluginError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.refuse(name, "a list"))?;
        let path = |at| format!("{}[{at}]", self.path(name));
        let each = list.iter().enumerate();
        each.map(|(at, value)| Self::object_at(path(at), value, known)).collect()
    }
}
