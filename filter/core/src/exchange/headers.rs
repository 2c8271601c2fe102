//! A request's headers, kept for the phases that decide by them: they can't be read again later.

use super::internal_headers::is_internal;
use warmroute_shared_state::wire::Reader;

/// Headers by name. Of several with one name the last counts, as in the picker that we stand in for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// All names and values.
    text: Vec<u8>,
    pairs: Vec<Pair>,
    /// An outer gateway is trusted to have set the internal ones.
    trusted: bool,
}

/// Where a name and its value are in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pair {
    name: (usize, usize),
    value: (usize, usize),
    internal: bool,
}

impl core::fmt::Debug for Headers {
    /// Names only: a value may be a key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ours = self.pairs.iter().filter(|pair| !pair.internal);
        f.debug_list()
            .entries(ours.map(|pair| String::from_utf8_lossy(self.at(pair.name))))
            .finish()
    }
}

impl Headers {
    /// Takes over what came. Internal headers are kept apart: they match no route, and only if they are `trusted` can
    /// they be read as control headers.
    #[must_use]
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (N, V)>,
        trusted: bool,
    ) -> Self {
        let mut headers = Self { trusted, ..Self::default() };
        for (name, value) in pairs {
            headers.push(name.as_ref(), value.as_ref());
        }
        headers
    }

    /// The same from the form in which a proxy-wasm host hands a header map over: the number of pairs, the lengths of
    /// each one's name and value, then these, each with a zero behind it; numbers are `u32`, little-endian. No name and no
    /// value is copied. Of a map that is cut off, what is whole counts.
    #[must_use]
    pub fn from_wire(bytes: Vec<u8>, trusted: bool) -> Self {
        let mut lengths = Reader::new(&bytes);
        let count = lengths.u32().unwrap_or(0) as usize;
        let mut at = count.saturating_mul(8).saturating_add(4);
        let mut pairs = Vec::with_capacity(count.min(bytes.len() / 8));
        let mut next = |length: u32| {
            let span = (at, at.saturating_add(length as usize));
            at = span.1.saturating_add(1);
            span
        };
        while pairs.len() < count
            && let (Ok(name), Ok(value)) = (lengths.u32(), lengths.u32())
        {
            let (name, value) = (next(name), next(value));
            if value.1 > bytes.len() {
                break;
            }
            let internal = is_internal(bytes.get(name.0..name.1).unwrap_or_default());
            pairs.push(Pair { name, value, internal });
        }
        Self { text: bytes, pairs, trusted }
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let mut put = |part: &[u8]| {
            let from = self.text.len();
            self.text.extend(part);
            (from, self.text.len())
        };
        let pair = Pair { name: put(name), value: put(value), internal: is_internal(name) };
        self.pairs.push(pair);
    }

    fn at(&self, (from, to): (usize, usize)) -> &[u8] {
        self.text.get(from..to).unwrap_or_default()
    }

    fn last(&self, name: &str, internal: bool) -> Option<&[u8]> {
        let named =
            |pair: &&Pair| pair.internal == internal && self.at(pair.name) == name.as_bytes();
        self.pairs.iter().rev().find(named).map(|pair| self.at(pair.value))
    }

    /// Names of the internal headers that came: for the host to take off.
    pub fn internal_names(&self) -> impl Iterator<Item = &str> {
        let internal = self.pairs.iter().filter(|pair| pair.internal);
        internal.filter_map(|pair| core::str::from_utf8(self.at(pair.name)).ok())
    }

    /// Value of a header by its name in lower case, if it is UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        core::str::from_utf8(self.bytes(name)?).ok()
    }

    /// The same as bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.last(name, false)
    }

    /// Value of a control header, if it can be trusted.
    #[must_use]
    pub fn control(&self, name: &str) -> Option<&str> {
        core::str::from_utf8(self.last(name, true).filter(|_| self.trusted)?).ok()
    }

    /// The filter sets this one: from now on it has this value only.
    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.push(name.as_bytes(), value.as_bytes());
        // Set by us, it is no client's, whatever it is called.
        if let Some(pair) = self.pairs.last_mut() {
            pair.internal = false;
        }
    }

    /// The filter takes this one off.
    pub fn remove(&mut self, name: &str) {
        let text = &self.text;
        let named = |pair: &Pair| text.get(pair.name.0..pair.name.1) == Some(name.as_bytes());
        self.pairs.retain(|pair| pair.internal || !named(pair));
    }
}

impl crate::scheduling::Headers for Headers {
    fn header(&self, name: &str) -> Option<&str> {
        self.get(name)
    }
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
        let headers = Headers::new(pairs, trusted);
        // As the host would hand them over.
        let wire = Headers::from_wire(wire(&pairs), trusted);
        assert_eq!(format!("{wire:?}"), format!("{headers:?}"));
        if trusted { wire } else { headers }
    }

    fn wire(pairs: &[(&str, &str)]) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        let mut bytes = number(pairs.len()).to_vec();
        for (name, value) in pairs {
            bytes.extend(number(name.len()));
            bytes.extend(number(value.len()));
        }
        for (name, value) in pairs {
            bytes.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        bytes
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

        fn of_a_map_that_is_cut_off_or_lies_what_is_whole_counts() {
            let whole = wire(&[("x-a", "1"), ("x-empty", ""), ("x-b", "22")]);
            let headers = Headers::from_wire(whole.clone(), false);
            assert_eq!(["x-a", "x-empty", "x-b"].map(|name| headers.get(name)), [Some("1"), Some(""), Some("22")]);
            for end in 0..whole.len() {
                let headers = Headers::from_wire(whole[..end].to_vec(), false);
                assert!(headers.get("x-b").is_none_or(|value| value == "22" && end + 1 == whole.len()), "{end}");
            }
            for count in [u32::MAX, 4] {
                let mut lying = whole.clone();
                lying[..4].copy_from_slice(&count.to_le_bytes());
                let _ = Headers::from_wire(lying, false);
            }
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

    #[cfg(not(target_arch = "wasm32"))]
    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_fault(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), count in 0u32..8) {
            let counted = [&count.to_le_bytes()[..], &bytes].concat();
            for bytes in [bytes, counted] {
                let headers = Headers::from_wire(bytes, true);
                let _ = (headers.get(""), headers.control("x-slo-ttft-ms"), headers.internal_names().count());
            }
        }

        #[test]
        fn what_is_handed_over_is_found(pairs in proptest::collection::vec(("[a-z-]{1,9}", ".{0,9}"), 0..9)) {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let (read, made) = (Headers::from_wire(wire(&pairs), true), Headers::new(pairs.iter().copied(), true));
            for (name, _) in &pairs {
                proptest::prop_assert_eq!(read.bytes(name), made.bytes(name));
                proptest::prop_assert_eq!(read.control(name), made.control(name));
            }
        }
    }
}
