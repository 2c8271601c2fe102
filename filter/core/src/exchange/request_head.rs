//! The request's headers, as far as the first decision needs them.

use super::Headers;
use crate::content_encoding;
use crate::request::PathClass;
use crate::request::parsers::{NoParser, ParserSet};

/// What was sent before the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// All headers, pseudo-headers too.
    pub headers: Headers,
    /// There is no body.
    pub end_of_stream: bool,
}

impl RequestHead {
    /// `:method`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.headers.get(":method").unwrap_or("")
    }

    /// `:path`, with the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.headers.get(":path").unwrap_or("")
    }

    /// `:authority`.
    #[must_use]
    pub fn host(&self) -> &str {
        self.headers.get(":authority").unwrap_or("")
    }

    /// `content-length`, if it is a number.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.headers.get("content-length")?.trim().parse().ok()
    }

    /// The API that is called. Only POST has a body that is read.
    ///
    /// # Errors
    /// If no parser takes the path.
    pub fn class(&self, parsers: &ParserSet) -> Result<PathClass, NoParser> {
        if self.method().eq_ignore_ascii_case("POST") {
            parsers.class(self.headers.bytes(":path").unwrap_or_default())
        } else {
            Ok(PathClass::Other)
        }
    }

    /// An encoding of the body that is not read here.
    #[must_use]
    pub fn foreign_encoding(&self) -> Option<&[u8]> {
        content_encoding::foreign(self.headers.bytes("content-encoding"))
    }

    /// `prefer: if-available` (RFC 7240): only if an endpoint holds some of the prompt.
    #[must_use]
    pub fn only_if_cached(&self) -> bool {
        let Some(prefer) = self.headers.get("prefer") else { return false };
        let token = |one: &str| one.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        prefer.split(',').any(|one| token(one) == "if-available")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> RequestHead {
        RequestHead { headers: Headers::new(pairs.iter().copied(), false), end_of_stream: false }
    }

    crate::tests! {
        fn only_post_is_read() {
            let class = |pairs: &[(&str, &str)]| head(pairs).class(&ParserSet::default());
            let of = |method| class(&[(":path", "/v1/chat/completions"), (":method", method)]);
            assert_eq!(of("POST"), Ok(PathClass::Chat));
            assert_eq!(of("GET"), Ok(PathClass::Other));
            assert_eq!(class(&[]), Ok(PathClass::Other));
        }

        fn a_length_that_is_no_number_is_none() {
            for (value, length) in [("17", Some(17)), ("-1", None), ("x", None), ("99999999999999999999999", None)] {
                assert_eq!(head(&[("content-length", value)]).content_length(), length, "{value}");
            }
        }

        fn preferences_are_a_list_of_tokens_with_parameters() {
            for (value, yes) in [
                ("if-available", true), ("respond-async, If-Available; x=1", true), ("if-available-not", false), ("", false),
            ] {
                assert_eq!(head(&[("prefer", value)]).only_if_cached(), yes, "{value}");
            }
        }
    }
}
