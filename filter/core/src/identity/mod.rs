//! Whose request it is: an API key or a verified token's claims name the tenant, the tenant says what is set and what
//! is taken off.
//!
//! No key is kept: what is compared, and all that is stored, are SHA-256 hashes. Claims are believed only as Envoy's
//! `jwt_authn` filter left them behind, which has checked the signature; whoever hands them in must not take them from
//! a header that a client could have sent.

mod api_key;
mod claims;
mod effects;
mod index;
mod properties;
mod reply;

#[cfg(test)]
mod tests;

pub use api_key::KeyHash;
pub use claims::{Claims, ClaimsError};
pub use effects::{Effects, TIER};
pub use index::{ANONYMOUS, TenantIndex, Unknown};
