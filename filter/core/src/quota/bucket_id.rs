//! Which bucket: by tenant, model and kind of limit, so that it stays the same over changes of the configuration.

use xxhash_rust::xxh3::Xxh3;

/// What a bucket counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Requests a minute (`rpm`).
    Requests = 0,
    /// Input and output tokens a minute (`tpm`).
    Tokens = 1,
    /// Requests at once (`concurrency`).
    Concurrency = 2,
    /// Reserved tokens at once (`inflightTokens`).
    InflightTokens = 3,
}

impl Kind {
    /// Every kind.
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

/// A bucket's name: a hash of tenant and model, whose last two bits say what the bucket counts. Of a million buckets two
/// have one name with a probability of 1 in 9 million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(u64);

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
        Self((hash.digest() << 2) | kind as u64)
    }

    /// What it counts.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Requests,
            1 => Kind::Tokens,
            2 => Kind::Concurrency,
            _ => Kind::InflightTokens,
        }
    }

    /// As a number, for messages.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The bucket of a number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}
