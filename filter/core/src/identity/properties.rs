//! Claims from Envoy's dynamic metadata, where `jwt_authn` puts them if it has `payload_in_metadata`.
//!
//! The host gives a property claim by claim: a text as it is, a list in the form of header pairs with empty values
//! (Envoy, `source/extensions/common/wasm/context.cc`, `serializeValue`). A whole object can't be asked for: one null in it
//! and the host gives nothing. Numbers and booleans come as their machine bytes, which say no type; they name no tenant
//! here.

use super::claims::Claims;
use serde_json::{Map, Value};

/// A claim's value longer than this is not read.
const MAX_BYTES: usize = 32 << 10;

impl Claims {
    /// Asks for `iss`, then for the claims that `names` gives for that issuer. `property` knows values by their path
    /// below the token's payload. `None`: there is no token.
    pub fn from_properties<'a, N: IntoIterator<Item = &'a str>>(
        property: impl Fn(&[&str]) -> Option<Vec<u8>>,
        names: impl FnOnce(&str) -> N,
    ) -> Option<Self> {
        let issuer = String::from_utf8(property(&["iss"])?).ok()?;
        let mut claims = Map::new();
        for name in names(&issuer) {
            let path = || property(&name.split('.').collect::<Vec<_>>());
            let found =
                property(&[name]).or_else(|| if name.contains('.') { path() } else { None });
            if let Some(claim) = found.as_deref().and_then(value) {
                claims.insert(name.to_owned(), claim);
            }
        }
        claims.insert("iss".to_owned(), issuer.into());
        Some(Self::new(claims))
    }
}

fn value(bytes: &[u8]) -> Option<Value> {
    if bytes.len() > MAX_BYTES {
        return None;
    }
    if let Some(items) = list(bytes) {
        return Some(items.into());
    }
    core::str::from_utf8(bytes).ok().map(Value::from)
}

/// The texts of a list: count, sizes in pairs, then zero-terminated texts in pairs. A text that reads as one all the
/// same can say no more than it could by itself.
fn list(bytes: &[u8]) -> Option<Vec<String>> {
    let (count, rest) = number(bytes)?;
    // Each has 8 bytes of sizes: a count that is too great is seen before anything is allocated.
    let (sizes, mut texts) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut items = Vec::new();
    for pair in sizes.chunks_exact(8) {
        let (length, after) = number(pair)?;
        let (text, tail) = texts.split_at_checked(length)?;
        texts = tail.strip_prefix(b"\0\0")?;
        if number(after)?.0 != 0 {
            return None;
        }
        // What is no text names nobody; the others still count.
        items.extend(core::str::from_utf8(text).ok().map(str::to_owned));
    }
    texts.is_empty().then_some(items)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(items: &[(&[u8], &[u8])]) -> Vec<u8> {
        let size = |text: &[u8]| u32::try_from(text.len()).unwrap().to_le_bytes();
        let mut bytes = u32::try_from(items.len()).unwrap().to_le_bytes().to_vec();
        for (name, value) in items {
            bytes.extend([size(name), size(value)].concat());
        }
        for (name, value) in items {
            bytes.extend([name, b"\0".as_slice(), value, b"\0"].concat());
        }
        bytes
    }

    crate::tests! {
        fn a_text_is_itself_and_a_list_its_items() {
            for (bytes, expected) in [
                (b"product".to_vec(), Some(Value::from("product"))),
                (b"".to_vec(), Some(Value::from(""))),
                (pairs(&[(b"x", b""), ("\u{e9}y".as_bytes(), b"")]), Some(Value::from(vec!["x", "\u{e9}y"]))),
                (pairs(&[(b"\xff", b""), (b"y", b"")]), Some(Value::from(vec!["y"]))),
                (pairs(&[]), Some(Value::from(Vec::<String>::new()))),
                // The double 2.5, and an object.
                (2.5f64.to_le_bytes().to_vec(), Some(Value::from("\0\0\0\0\0\0\u{4}@"))),
                (b"\xff".to_vec(), None),
                (vec![b'x'; MAX_BYTES + 1], None),
            ] {
                assert_eq!(value(&bytes), expected);
            }
            assert_eq!(list(&pairs(&[(b"a", b"b")])), None);
        }

        fn a_list_that_is_cut_or_lies_about_itself_is_none() {
            let whole = pairs(&[(b"abc", b""), (b"d", b"")]);
            for cut in 0..whole.len() {
                assert_eq!(list(&whole[..cut]), None, "{cut}");
            }
            assert_eq!(list(&[whole, vec![0]].concat()), None);
            assert_eq!(list(&[0xff; 64]), None);
        }

        fn only_the_claims_that_count_are_asked_for() {
            let property = |path: &[&str]| match path {
                ["iss"] => Some(b"sso".to_vec()),
                ["org"] => Some(b"product".to_vec()),
                ["realm", "roles"] => Some(pairs(&[(b"r", b"")])),
                ["none"] | ["realm.roles"] => None,
                _ => unreachable!("{path:?}"),
            };
            let claims = Claims::from_properties(property, |issuer| {
                assert_eq!(issuer, "sso");
                ["org", "realm.roles", "none"]
            });
            let claims = claims.unwrap();
            assert_eq!(claims.issuer(), Some("sso"));
            let values = |name| claims.values(name).collect::<Vec<_>>();
            assert_eq!((values("org"), values("realm.roles"), values("none")), (vec!["product".into()], vec!["r".into()], vec![]));
            assert!(Claims::from_properties(|_| None, |_| [""; 0]).is_none());
            assert!(Claims::from_properties(|_| Some(vec![0xff]), |_| [""; 0]).is_none());
        }
    }
}
