//! Tokens as an identity provider signs them (RFC 7519, HS256), and Envoy's filter that checks them.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What a provider signs with.
pub(crate) const KEY: &[u8] = b"the provider's key, 32 bytes or more";
/// What another one signs with.
pub(crate) const FOREIGN_KEY: &[u8] = b"another provider's key, as long as it";

/// The provider that the tenants name.
pub(crate) const ISSUER: &str = "https://sso.example.internal";
/// Another one that Envoy trusts as well.
pub(crate) const OTHER_ISSUER: &str = "https://other.example.internal";

/// A token of these claims.
pub(crate) fn signed(key: &[u8], claims: &Value) -> String {
    let header = base64url(json!({"alg": "HS256", "typ": "JWT"}).to_string().as_bytes());
    let text = format!("{header}.{}", base64url(claims.to_string().as_bytes()));
    let signature = base64url(&hmac(key, text.as_bytes()));
    format!("{text}.{signature}")
}

/// A token's payload as `jwt_authn` forwards it.
pub(crate) fn payload(claims: &Value) -> String {
    base64url(claims.to_string().as_bytes())
}

/// RFC 2104 with SHA-256, for keys of at most a block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

/// RFC 4648 section 5, without padding.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(*group.get(at).unwrap_or(&0)));
        for at in 0..=group.len() {
            text.push(char::from(ALPHABET[bits >> (18 - 6 * at) & 63]));
        }
    }
    text
}

/// Envoy's bootstrap with `jwt_authn` before the filter. It lets requests without a token pass, and refuses those with a
/// bad one. `leaves`: the field that says where it leaves a token's claims, and its value.
pub(crate) fn checked(template: &str, leaves: (&str, &str)) -> String {
    let provider = |issuer: &str, key: &[u8]| {
        let keys = json!({"keys": [{"kty": "oct", "alg": "HS256", "k": base64url(key)}]});
        let mut provider = json!({
            "issuer": issuer,
            // The token stays on the request: what is taken off is the tenant's to say.
            "forward": true,
            "local_jwks": {"inline_string": keys.to_string()},
        });
        provider[leaves.0] = leaves.1.into();
        provider
    };
    let either =
        json!([{"provider_name": "sso"}, {"provider_name": "other"}, {"allow_missing": {}}]);
    let filter = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {
                "sso": provider(ISSUER, KEY),
                "other": provider(OTHER_ISSUER, FOREIGN_KEY),
            },
            "rules": [{
                "match": {"prefix": "/"},
                "requires": {"requires_any": {"requirements": either}},
            }],
        },
    });
    let filters = "http_filters:\n";
    template.replacen(filters, &format!("{filters}          - {filter}\n"), 1)
}
