//! The API key that a request shows.
//!
//! SHA-256 is the crate `sha2`'s: 9 KB of the module. A key is hashed once a request.

use sha2::{Digest, Sha256};

/// Longer ones are no keys: the hashing of what clients send is bounded.
const MAX_KEY_BYTES: usize = 4096;

/// SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Of a key; `None` if it is empty or too long to be one.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<Self> {
        let is_key = !key.is_empty() && key.len() <= MAX_KEY_BYTES;
        is_key.then(|| Self(Sha256::digest(key).into()))
    }
}

/// A hash is no key, but it has no place in a log either.
impl core::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// The key of `Authorization: Bearer <key>` (RFC 6750; the scheme in any case).
pub(super) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.trim_ascii().split_at_checked(b"bearer".len())?;
    let spaced = key.first().is_some_and(u8::is_ascii_whitespace);
    (scheme.eq_ignore_ascii_case(b"bearer") && spaced).then(|| key.trim_ascii_start())
}
