//! The claims of a token, as Envoy's `jwt_authn` filter leaves them: JSON, or base64url of it where it forwards the
//! payload in a header (`forward_payload_header`). For those in dynamic metadata see `properties`.

use crate::base64;
use core::fmt;
use serde_json::{Map, Value};

/// Claims longer than this are not read.
const MAX_BYTES: usize = 32 << 10;

/// The claims of a verified token.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(Map<String, Value>);

/// They say who a person is: not for logs.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claims({})", self.0.len())
    }
}

/// Why claims can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimsError {
    /// Longer than 32 KiB.
    TooLong,
    /// Not base64url.
    NotBase64,
    /// No JSON object.
    NotAnObject,
}

impl fmt::Display for ClaimsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token's claims are longer than 32 KiB",
            Self::NotBase64 => "the token's claims are not base64url",
            Self::NotAnObject => "the token's claims are no JSON object",
        })
    }
}

impl core::error::Error for ClaimsError {}

impl Claims {
    pub(super) fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// If it is too long or no JSON object.
    pub fn from_json(json: &[u8]) -> Result<Self, ClaimsError> {
        if json.len() > MAX_BYTES {
            return Err(ClaimsError::TooLong);
        }
        serde_json::from_slice(json).map(Self::new).map_err(|_| ClaimsError::NotAnObject)
    }

    /// Reads what `forward_payload_header` holds.
    ///
    /// # Errors
    /// If it is too long, or not base64url of a JSON object.
    pub fn from_payload_header(value: &[u8]) -> Result<Self, ClaimsError> {
        if value.len() > MAX_BYTES.saturating_mul(2) {
            return Err(ClaimsError::TooLong);
        }
        Self::from_json(&base64::decode(value.trim_ascii()).ok_or(ClaimsError::NotBase64)?)
    }

    /// `iss`.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.0.get("iss")?.as_str()
    }

    /// The texts of a claim: one, or those of a list; numbers and booleans as JSON writes them. A name with dots may
    /// be a path into objects (`realm_access.roles`), if there is no claim of that very name.
    pub fn values(&self, name: &str) -> impl Iterator<Item = String> {
        let claim = self.0.get(name).or_else(|| {
            let mut path = name.split('.');
            let first = self.0.get(path.next()?)?;
            path.try_fold(first, |value, step| value.get(step))
        });
        let one = claim.into_iter().filter(|claim| !claim.is_array());
        let list = claim.and_then(Value::as_array).into_iter().flatten();
        one.chain(list).filter_map(|value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_claim_is_a_text_a_list_or_a_path() {
            let claims = Claims::from_json(br#"{"iss":"i","org":"a","n":7,"groups":["x",8,null,["y"]],"realm_access":{"roles":["r"]},
                "https://x.y/org":"u","a.b":"literal","a":{"b":"path"},"none":null}"#).unwrap();
            let values = |name| claims.values(name).collect::<Vec<_>>();
            assert_eq!(claims.issuer(), Some("i"));
            for (name, expected) in [
                ("org", vec!["a"]), ("n", vec!["7"]), ("groups", vec!["x", "8"]), ("realm_access.roles", vec!["r"]),
                ("https://x.y/org", vec!["u"]), ("a.b", vec!["literal"]), ("none", vec![]), ("no.such", vec![]),
                ("org.a", vec![]), ("", vec![]), ("a", vec![]),
            ] {
                assert_eq!(values(name), expected, "{name}");
            }
        }

        fn what_is_no_object_is_refused() {
            for (json, error) in [("", ClaimsError::NotAnObject), ("[]", ClaimsError::NotAnObject), ("{", ClaimsError::NotAnObject)] {
                assert_eq!(Claims::from_json(json.as_bytes()).unwrap_err(), error);
            }
            assert_eq!(Claims::from_json(&vec![b' '; MAX_BYTES + 1]).unwrap_err(), ClaimsError::TooLong);
            assert_eq!(Claims::from_payload_header(&vec![b'A'; 2 * MAX_BYTES + 1]).unwrap_err(), ClaimsError::TooLong);
            assert_eq!(Claims::from_payload_header(b"%").unwrap_err(), ClaimsError::NotBase64);
            // {"iss":"i"}
            assert_eq!(Claims::from_payload_header(b"eyJpc3MiOiJpIn0").unwrap().issuer(), Some("i"));
            assert_eq!(Claims::from_json(br#"{"iss":1}"#).unwrap().issuer(), None);
        }
    }
}
