//! The messages.

use super::{DropReason, PoolKey, Request, Usage};
use crate::quota::{Ask, BucketId, Level, Refusal};
use warmroute_shared_state::endpoint::EndpointId;

/// Tickets in one part of an announcement at most.
pub const MAX_ANNOUNCED: usize = 256;

/// A request that counts as in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTicket {
    /// Its number.
    pub number: u64,
    /// What it asked for.
    pub request: Request,
    /// Where it went, as far as told.
    pub endpoints: Vec<EndpointId>,
    /// When it was dispatched.
    pub dispatched_ms: u64,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedTicket {
    /// Its number.
    pub number: u64,
    /// What it asks for.
    pub request: Request,
    /// Its budgets were taken already.
    pub reserved: bool,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// May this request go?
    Acquire {
        /// Its number.
        number: u64,
        /// What it needs.
        request: Request,
    },
    /// It went, from what was leased.
    Admitted {
        /// Its number.
        number: u64,
        /// What it took of the leases.
        request: Request,
    },
    /// It went to these endpoints.
    Placed {
        /// Its number.
        number: u64,
        /// Where: a prefill and a decode endpoint, for example.
        endpoints: Vec<EndpointId>,
    },
    /// It is over.
    Release {
        /// Its number.
        number: u64,
        /// What it used, for the shares.
        usage: Usage,
        /// Tokens that its tenant is charged; `None`: it was not sent on, so nothing of it counts.
        charged: Option<u64>,
    },
    /// It is gone before it went.
    Cancel {
        /// Its number.
        number: u64,
    },
    /// What was leased and not used.
    Return {
        /// Slots and tokens of pools.
        pools: Vec<(PoolKey, u32, u64)>,
        /// Of budgets.
        budgets: Vec<Ask>,
    },
    /// The worker lives.
    Heartbeat {
        /// Number of the last message from the dispatcher; 0: some are missing, or there was none.
        received: u64,
    },
    /// All that the worker has, in answer to a request; it may come in several parts.
    Announce {
        /// Of the request.
        nonce: u64,
        /// The last part.
        last: bool,
        /// In flight.
        held: Vec<HeldTicket>,
        /// Waiting.
        parked: Vec<ParkedTicket>,
        /// How budgets stood when the worker last heard of them, and when that was.
        levels: Vec<(Level, u64)>,
    },
}

/// A worker's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromWorker {
    /// The dispatcher that it is for; 0: none is known.
    pub epoch: u64,
    /// Who says it.
    pub incarnation: u64,
    /// Its number on the way.
    pub sequence: u64,
    /// What.
    pub report: Report,
}

/// Why a request may not go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The queue has no place for it.
    Queue {
        /// Why; never [`DropReason::Budget`].
        reason: DropReason,
        /// When to try again, in ms.
        retry_after_ms: u64,
    },
    /// Its tenant's budgets do not allow for it.
    Budget(Refusal),
}

impl Refused {
    /// The reason in short.
    #[must_use]
    pub fn reason(&self) -> DropReason {
        match self {
            Self::Queue { reason, .. } => *reason,
            Self::Budget(_) => DropReason::Budget,
        }
    }
}

/// What the dispatcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The request may go.
    Grant {
        /// Its number.
        number: u64,
        /// Its budgets, after what it took.
        levels: Vec<Level>,
    },
    /// Its budgets are taken; it waits.
    Waits {
        /// Its number.
        number: u64,
        /// Its budgets, after what it took.
        levels: Vec<Level>,
    },
    /// It may not go.
    Refuse {
        /// Its number.
        number: u64,
        /// Why.
        refused: Refused,
    },
    /// The request in flight is to be ended.
    Evict {
        /// Its number.
        number: u64,
    },
    /// So much may be used without asking.
    Lease {
        /// Slots of this pool.
        pool: PoolKey,
        /// How many requests more.
        slots: u32,
        /// Of how many tokens in all; `u64::MAX`: of any number.
        tokens: u64,
        /// Until then; what is left is to be returned.
        until_ms: u64,
    },
    /// So much of a tenant's budgets may be used without asking.
    LeaseBudgets {
        /// How much more of which.
        lent: Vec<Ask>,
        /// How these budgets stand, what is lent being taken.
        levels: Vec<Level>,
        /// Until then; what is left is to be returned.
        until_ms: u64,
    },
    /// How budgets stand of which only the dispatcher's own VM would know.
    Levels {
        /// These.
        levels: Vec<Level>,
    },
    /// What is left of these leases is wanted back.
    Recall {
        /// Of pools.
        pools: Vec<PoolKey>,
        /// Of budgets.
        budgets: Vec<BucketId>,
    },
    /// The dispatcher wants to know all that the worker has.
    AnnounceRequest {
        /// To be named in the answer.
        nonce: u64,
    },
}

/// The dispatcher's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToWorker {
    /// Who says it.
    pub epoch: u64,
    /// To whom.
    pub incarnation: u64,
    /// Its number on the way.
    pub sequence: u64,
    /// What.
    pub order: Order,
}
