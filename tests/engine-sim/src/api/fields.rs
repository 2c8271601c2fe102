//! The fields of a JSON body, read one by one: unknown ones are ignored, of duplicates the last
//! wins, and a wrong type is reported with its path, all as vLLM does.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::errors::ApiError;

/// A JSON object whose values are not read yet.
pub struct Fields<'a> {
    values: HashMap<Cow<'a, str>, &'a RawValue>,
    path: &'static str,
}

/// A string that borrows from the body where it has no escapes.
#[derive(Deserialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'a> Fields<'a> {
    /// Reads a request body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let values = serde_json::from_slice(body).map_err(|error| {
            // The fixtures count the offset in characters from 0; for one-line bodies this is it.
            let at = error.column();
            if error.is_data() {
                return ApiError::validation(
                    "{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary or \
                     object to extract fields from'}",
                    Some("body".to_owned()),
                );
            }
            ApiError::validation(
                &format!(
                    "{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 \
                     items>', 'ctx': {{'error': 'Expecting value'}}}}"
                ),
                Some(format!("body.{at}")),
            )
        })?;
        Ok(Self { values, path: "body" })
    }

    /// Reads an object inside the body; `path` names it in errors.
    pub fn nested(raw: &'a RawValue, path: &'static str) -> Result<Self, ApiError> {
        let values = serde_json::from_str(raw.get()).map_err(|_| wrong_type(path, "dictionary"))?;
        Ok(Self { values, path })
    }

    /// The value as sent; `None` if absent or null.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.values.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// The value, or an error that names `kind` as what it should have been.
    pub fn get<T: DeserializeOwned>(&self, name: &str, kind: &str) -> Result<Option<T>, ApiError> {
        self.raw(name)
            .map(|raw| {
                serde_json::from_str(raw.get())
                    .map_err(|_| wrong_type(&format!("{}.{name}", self.path), kind))
            })
            .transpose()
    }

    /// A string value.
    pub fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, ApiError> {
        self.raw(name)
            .map(|raw| {
                serde_json::from_str(raw.get())
                    .map(|Text(text)| text)
                    .map_err(|_| wrong_type(&format!("{}.{name}", self.path), "string"))
            })
            .transpose()
    }

    /// A whole number that is at least 0. As in vLLM, digits in a string count as a number.
    pub fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let digits = raw.get().trim_matches('"');
        if let Ok(value) = digits.parse::<usize>() {
            return Ok(Some(value));
        }
        if let Ok(value) = digits.parse::<i64>() {
            return Err(ApiError::bad_request(
                format!(
                    "{name} must be at least 1, got {value}. (parameter={name}, value={value})"
                ),
                Some(name),
            ));
        }
        let loc = format!("{}.{name}", self.path);
        if raw.get().starts_with('"') {
            return Err(ApiError::validation(
                &format!(
                    "{{'type': 'int_parsing', 'loc': '{loc}', 'msg': 'Input should be a valid integer, unable to \
                     parse string as an integer', 'input': '{digits}'}}"
                ),
                Some(loc),
            ));
        }
        Err(wrong_type(&loc, "integer"))
    }

    /// The error for a required field that is absent.
    pub fn missing(&self, name: &str) -> ApiError {
        let loc = format!("{}.{name}", self.path);
        ApiError::validation(
            &format!(
                "{{'type': 'missing', 'loc': '{loc}', 'msg': 'Field required', 'input': '<dict of {} items>'}}",
                self.values.len()
            ),
            Some(loc),
        )
    }
}

/// The schema error for a value of the wrong kind.
pub fn wrong_type(loc: &str, kind: &str) -> ApiError {
    ApiError::validation(
        &format!(
            "{{'type': '{kind}_type', 'loc': '{loc}', 'msg': 'Input should be a valid {kind}'}}"
        ),
        Some(loc.to_owned()),
    )
}
