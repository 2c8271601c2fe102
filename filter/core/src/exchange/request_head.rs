//! The request's headers, as far as the first decision needs them.

use crate::request::PathClass;

/// What was sent before the body.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestHead<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`, with the query.
    pub path: &'a [u8],
    /// `content-encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// `content-length`, if it is a number.
    pub content_length: Option<u64>,
    /// There is no body.
    pub end_of_stream: bool,
}

impl<'a> RequestHead<'a> {
    /// Picks them out of all headers, in any order.
    pub fn from_pairs(
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        end_of_stream: bool,
    ) -> Self {
        let mut head = Self { end_of_stream, ..Self::default() };
        for (name, value) in pairs {
            match name {
                b":method" => head.method = value,
                b":path" => head.path = value,
                b"content-encoding" => head.content_encoding = Some(value),
                b"content-length" => {
                    head.content_length =
                        core::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
                }
                _ => {}
            }
        }
        head
    }

    /// The API that is called. Only POST has a body that is read.
    #[must_use]
    pub fn class(&self) -> PathClass {
        if self.method.eq_ignore_ascii_case(b"POST") {
            PathClass::of(self.path)
        } else {
            PathClass::Other
        }
    }

    /// An encoding of the body that is not read here.
    #[must_use]
    pub fn foreign_encoding(&self) -> Option<&'a [u8]> {
        let encoding = self.content_encoding?.trim_ascii();
        let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
        (!plain).then_some(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(pairs: &[(&'a str, &'a str)]) -> RequestHead<'a> {
        let pairs = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        RequestHead::from_pairs(pairs, false)
    }

    crate::tests! {
        fn only_post_is_read() {
            let of = |method| head(&[(":path", "/v1/chat/completions"), (":method", method)]).class();
            assert_eq!(of("POST"), PathClass::Chat);
            assert_eq!(of("GET"), PathClass::Other);
            assert_eq!(head(&[]).class(), PathClass::Other);
        }

        fn an_encoding_is_foreign_unless_it_says_nothing() {
            for (value, foreign) in [("gzip", true), (" br ", true), ("gzip, br", true), ("identity", false), ("", false), ("Identity", false)] {
                assert_eq!(head(&[("content-encoding", value)]).foreign_encoding().is_some(), foreign, "{value}");
            }
        }

        fn a_length_that_is_no_number_is_none() {
            for (value, length) in [("17", Some(17)), ("-1", None), ("x", None), ("99999999999999999999999", None)] {
                assert_eq!(head(&[("content-length", value)]).content_length, length, "{value}");
            }
        }
    }
}
