//! Which bucket: by tenant, model and kind of limit, so that it stays the same over changes of the configuration.

use xxhash_rust::xxh3::Xxh3;

/// What a bucket counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Requests a minute (`rpm`).
    Requests,
    /// Input and output tokens a minute (`tpm`).
    Tokens,
    /// Requests at once (`concurrency`).
    Concurrency,
    /// Reserved tokens at once (`inflightTokens`).
    InflightTokens,
}

impl Kind {
    /// Every kind; a kind's place is its number on the wire.
    pub const ALL: [Self; 4] =
        [Self::Requests, Self::Tokens, Self::Concurrency, Self::InflightTokens];

    /// Whether time fills it again; else only those that took from it do.
    #[must_use]
    pub fn refills(self) -> bool {
        matches!(self, Self::Requests | Self::Tokens)
    }

    /// One word for statistics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "rpm",
            Self::Tokens => "tpm",
            Self::Concurrency => "concurrency",
            Self::InflightTokens => "inflight_tokens",
        }
    }
}

/// A bucket's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId {
    /// What it counts.
    pub kind: Kind,
    /// Hash of the tenant's name and the limit's `model`. With a million of them, two are the same with a
    /// probability of 1 in 37 million.
    pub key: u64,
}

impl BucketId {
    /// The bucket of a tenant's limit. `model` is the limit's, which may be `*`: all models without a limit of their
    /// own share one bucket, so clients can't make new ones by asking for new names.
    #[must_use]
    pub fn new(tenant: &str, model: &str, kind: Kind) -> Self {
        let mut hash = Xxh3::new();
        // Lengths first: ("ab", "c") is another than ("a", "bc").
        hash.update(&(tenant.len() as u64).to_le_bytes());
        hash.update(tenant.as_bytes());
        hash.update(model.as_bytes());
        Self { kind, key: hash.digest() }
    }
}
