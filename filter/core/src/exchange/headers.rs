//! A request's headers, kept for the phases that decide by them: they can't be read again later.

use super::internal_headers::is_internal;

/// Headers by name. Of several with one name the last counts, as in the picker that we stand in for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    pairs: Vec<(String, Vec<u8>)>,
    internal: Vec<(String, Vec<u8>)>,
    /// An outer gateway is trusted to have set the internal ones.
    trusted: bool,
}

impl core::fmt::Debug for Headers {
    /// Names only: a value may be a key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.pairs.iter().map(|(name, _)| name)).finish()
    }
}

impl Headers {
    /// Takes over what came. Internal headers are kept apart: they match no route, and only if they are `trusted` can
    /// they be read as control headers.
    #[must_use]
    pub fn new(mut pairs: Vec<(String, Vec<u8>)>, trusted: bool) -> Self {
        let internal = pairs.extract_if(.., |(name, _)| is_internal(name.as_bytes())).collect();
        Self { pairs, internal, trusted }
    }

    /// Names of the internal headers that came: for the host to take off.
    pub fn internal_names(&self) -> impl Iterator<Item = &str> {
        self.internal.iter().map(|(name, _)| name.as_str())
    }

    /// Value of a header by its name in lower case, if it is UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        core::str::from_utf8(self.bytes(name)?).ok()
    }

    /// The same as bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        last(&self.pairs, name)
    }

    /// Value of a control header, if it can be trusted.
    #[must_use]
    pub fn control(&self, name: &str) -> Option<&str> {
        core::str::from_utf8(last(&self.internal, name).filter(|_| self.trusted)?).ok()
    }

    /// The filter sets this one: from now on it has this value only.
    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.pairs.push((name.to_owned(), value.as_bytes().to_vec()));
    }

    /// The filter takes this one off.
    pub fn remove(&mut self, name: &str) {
        self.pairs.retain(|(known, _)| known != name);
    }
}

impl crate::scheduling::Headers for Headers {
    fn header(&self, name: &str) -> Option<&str> {
        self.get(name)
    }
}

fn last<'a>(pairs: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
    pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(trusted: bool) -> Headers {
        let pairs = [
            ("x-a", "1"),
            ("x-a", "2"),
            ("x-llm-d-inference-objective", "p"),
            ("x-gateway-base-model-name", "m"),
        ];
        Headers::new(pairs.map(|(n, v)| (n.to_owned(), v.as_bytes().to_vec())).into(), trusted)
    }

    crate::tests! {
        fn the_last_of_a_name_counts() {
            let mut headers = headers(false);
            assert_eq!(headers.get("x-a"), Some("2"));
            headers.set("x-a", "3");
            assert_eq!((headers.get("x-a"), headers.get("x-b")), (Some("3"), None));
            headers.remove("x-a");
            assert_eq!(headers.get("x-a"), None);
        }

        fn internal_headers_are_read_only_as_control_headers_and_only_if_trusted() {
            for trusted in [false, true] {
                let headers = headers(trusted);
                assert_eq!(headers.get("x-gateway-base-model-name"), None);
                assert_eq!(headers.get("x-llm-d-inference-objective"), None);
                assert_eq!(headers.control("x-llm-d-inference-objective"), trusted.then_some("p"));
                // Taken off in any case.
                let names: Vec<_> = headers.internal_names().collect();
                assert_eq!(names, ["x-llm-d-inference-objective", "x-gateway-base-model-name"]);
            }
        }
    }
}
