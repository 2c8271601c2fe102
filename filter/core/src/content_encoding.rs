//! `content-encoding`, of requests and of responses.

/// The encoding of a body that is therefore not read here, by the header's value; none if the body comes as it is.
pub(crate) fn foreign(value: Option<&[u8]>) -> Option<&[u8]> {
    let encoding = value?.trim_ascii();
    let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
    (!plain).then_some(encoding)
}

#[cfg(test)]
mod tests {
    use super::foreign;

    crate::tests! {
        fn an_encoding_is_foreign_unless_it_says_nothing() {
            for (value, encoding) in [
                ("gzip", Some("gzip")), (" br ", Some("br")), ("gzip, br", Some("gzip, br")), ("identity", None),
                (" Identity", None), ("", None), (" ", None),
            ] {
                assert_eq!(foreign(Some(value.as_bytes())), encoding.map(str::as_bytes), "{value}");
            }
            assert_eq!(foreign(None), None);
        }
    }
}
