//! What a request asks of the dispatcher.

use crate::quota::Ask;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// Bytes of a fairness ID at most; longer ones are cut.
pub const MAX_FLOW_BYTES: usize = 256;

/// Tokens of a request at most, far beyond any engine's context.
const MAX_TOKENS: u64 = 1 << 26;

/// Bytes of a body at most.
const MAX_BYTES: u64 = 1 << 40;

/// A pool with flow control: the same through policy changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PoolKey(pub u64);

impl PoolKey {
    /// No flow control: only budgets are asked for.
    pub const NONE: Self = Self(0);

    /// The key of the pool `namespace/name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(name.as_bytes()).max(1))
    }
}

/// A request in one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TicketId {
    /// The VM.
    pub incarnation: u64,
    /// Its number there.
    pub number: u64,
}

/// Tokens of a finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: u64,
    /// Completion tokens.
    pub completion: u64,
}

impl Usage {
    /// Both.
    #[must_use]
    pub fn tokens(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }

    /// No more than a request can use: what an engine counts wrongly must not lock a flow out for ever.
    #[must_use]
    pub fn plausible(self) -> Self {
        Self { prompt: self.prompt.min(MAX_TOKENS), completion: self.completion.min(MAX_TOKENS) }
    }
}

/// A request as the dispatcher knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The pool that it goes to.
    pub pool: PoolKey,
    /// Its priority.
    pub priority: i32,
    /// Its fairness ID.
    pub flow: String,
    /// Its tokens, prompt and completion, as estimated.
    pub tokens: u64,
    /// Bytes of its body.
    pub bytes: u64,
    /// When it came, in ms.
    pub since_ms: u64,
    /// When its time to live ends ([`deadline_ms`](crate::flow_control::policy::ordering::deadline_ms)).
    pub deadline_ms: u64,
    /// When its first token is due ([`slo_deadline_ms`](crate::flow_control::policy::ordering::slo_deadline_ms)).
    pub slo_ms: u64,
    /// What it takes of its tenant's budgets: all at once, or it is refused.
    pub budgets: Vec<Ask>,
}

impl Request {
    /// Within the bounds that sums and messages need, whatever a client said.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.flow.truncate(self.flow.floor_char_boundary(MAX_FLOW_BYTES));
        self.tokens = self.tokens.min(MAX_TOKENS);
        self.bytes = self.bytes.min(MAX_BYTES);
        self
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.pool.0);
        w.u32(self.priority.cast_unsigned());
        w.string(&self.flow);
        for value in [self.tokens, self.bytes, self.since_ms, self.deadline_ms, self.slo_ms] {
            w.u64(value);
        }
        Ask::write_all(&self.budgets, w);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = Self {
            pool: PoolKey(r.u64()?),
            priority: r.u32()?.cast_signed(),
            flow: r.string()?.to_owned(),
            tokens: r.u64()?,
            bytes: r.u64()?,
            since_ms: r.u64()?,
            deadline_ms: r.u64()?,
            slo_ms: r.u64()?,
            budgets: Ask::read_all(r)?,
        };
        Ok(request.bounded())
    }
}

/// Writes a list with its count before it; what exceeds 65,535 items is cut.
pub(super) fn write_list<T>(w: &mut Writer, items: &[T], each: impl Fn(&mut Writer, &T)) {
    let count = u16::try_from(items.len()).unwrap_or(u16::MAX);
    w.u16(count);
    items.iter().take(usize::from(count)).for_each(|item| each(w, item));
}

/// Reads a list. It grows with what is there, whatever the count says.
pub(super) fn read_list<T>(
    r: &mut Reader<'_>,
    each: impl Fn(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let mut items = Vec::new();
    for _ in 0..r.u16()? {
        items.push(each(r)?);
    }
    Ok(items)
}
