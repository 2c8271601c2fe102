//! From a credential to its tenant, without a walk over all of them.

use super::api_key::{KeyHash, bearer};
use super::claims::Claims;
use core::hash::BuildHasherDefault;
use hashbrown::HashMap;
use warmroute_shared_state::policy::tenants::Tenant;
use xxhash_rust::xxh64::Xxh64;

/// The tenant that stands for everybody without a known credential.
pub const ANONYMOUS: &str = "anonymous";

/// Keys come from the configuration only, so a hasher without secret serves.
type ByText<T> = HashMap<String, T, BuildHasherDefault<Xxh64>>;

/// Nobody that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// No credential was shown.
    Missing,
    /// One was, but it is no tenant's.
    Wrong,
}

/// The tenants by their credentials: built once for each configuration.
#[derive(Default)]
pub struct TenantIndex {
    by_key: HashMap<KeyHash, usize, BuildHasherDefault<Xxh64>>,
    /// By issuer, then by the name of the claim, then by its value.
    by_claim: ByText<ByText<ByText<usize>>>,
    anonymous: Option<usize>,
}

impl core::fmt::Debug for TenantIndex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "TenantIndex({} keys, {} issuers)", self.by_key.len(), self.by_claim.len())
    }
}

impl TenantIndex {
    /// Of two tenants with the same key or claim the first counts.
    #[must_use]
    pub fn new(tenants: &[Tenant]) -> Self {
        let mut index = Self::default();
        for (place, tenant) in tenants.iter().enumerate() {
            for hash in &tenant.key_hashes {
                index.by_key.entry(KeyHash(*hash)).or_insert(place);
            }
            if let Some(jwt) = &tenant.jwt {
                let claims = index.by_claim.entry(jwt.issuer.clone()).or_default();
                let values = claims.entry(jwt.claim.clone()).or_default();
                values.entry(jwt.value.clone()).or_insert(place);
            }
            if tenant.name == ANONYMOUS {
                index.anonymous.get_or_insert(place);
            }
        }
        index
    }

    /// Whether there is a tenant that tokens can name: only then need claims be looked for.
    #[must_use]
    pub fn reads_claims(&self) -> bool {
        !self.by_claim.is_empty()
    }

    /// The claims that may name a tenant, of tokens of this issuer: for [`Claims::from_properties`].
    pub fn claim_names(&self, issuer: &str) -> impl Iterator<Item = &str> {
        self.by_claim.get(issuer).into_iter().flat_map(|names| names.keys().map(String::as_str))
    }

    /// The tenant of a request, as its place in the policy: by the key in `authorization`, else by that in `x-api-key`, else by the claims of its
    /// token; else the anonymous one, if there is any. `header` knows names in lower case; `claims` is asked only if
    /// they can say something.
    ///
    /// # Errors
    /// If it is nobody's.
    pub fn identify<'a>(
        &self,
        header: impl Fn(&str) -> Option<&'a [u8]>,
        claims: impl FnOnce() -> Option<Claims>,
    ) -> Result<usize, Unknown> {
        let authorization = header("authorization");
        let api_key = header("x-api-key");
        let by_key =
            |key: Option<&[u8]>| self.by_key.get(&KeyHash::of(key?.trim_ascii())?).copied();
        if let Some(tenant) = by_key(authorization.and_then(bearer)).or_else(|| by_key(api_key)) {
            return Ok(tenant);
        }
        let claims = if self.reads_claims() { claims() } else { None };
        if let Some(tenant) = claims.as_ref().and_then(|claims| self.by_claims(claims)) {
            return Ok(tenant);
        }
        match self.anonymous {
            Some(tenant) => Ok(tenant),
            None if authorization.is_none() && api_key.is_none() && claims.is_none() => {
                Err(Unknown::Missing)
            }
            None => Err(Unknown::Wrong),
        }
    }

    /// If several tenants fit, as they may with a list, the first in the policy.
    fn by_claims(&self, claims: &Claims) -> Option<usize> {
        let names = self.by_claim.get(claims.issuer()?)?;
        let tenants = names.iter().flat_map(|(name, tenants)| {
            claims.values(name).filter_map(|value| tenants.get(&value).copied())
        });
        tenants.min()
    }
}
