//! The messages and their bytes.

use super::request::{read_list, write_list};
use super::{DropReason, PoolKey, Request, Usage};
use crate::quota::{Ask, Level, Refusal, Why};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

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
        /// Why.
        reason: DropReason,
    },
    /// What was leased and not used.
    Return {
        /// Slots and tokens of pools.
        pools: Vec<(PoolKey, u32, u64)>,
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
    /// What is left of these leases is wanted back.
    Recall {
        /// Of pools.
        pools: Vec<PoolKey>,
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

impl FromWorker {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        head(&mut w, self.epoch, self.incarnation, self.sequence);
        let numbered = |w: &mut Writer, tag: u8, number: u64| {
            w.u8(tag);
            w.u64(number);
        };
        match &self.report {
            Report::Acquire { number, request } => {
                numbered(&mut w, 1, *number);
                request.write(&mut w);
            }
            Report::Admitted { number, request } => {
                numbered(&mut w, 2, *number);
                request.write(&mut w);
            }
            Report::Placed { number, endpoints } => {
                numbered(&mut w, 3, *number);
                write_list(&mut w, endpoints, |w, id| w.u64(id.0));
            }
            Report::Release { number, usage, charged } => {
                numbered(&mut w, 4, *number);
                w.u64(usage.prompt);
                w.u64(usage.completion);
                w.u8(u8::from(charged.is_some()));
                w.u64(charged.unwrap_or(0));
            }
            Report::Cancel { number, reason } => {
                numbered(&mut w, 5, *number);
                w.u8(reason.code());
            }
            Report::Return { pools } => {
                w.u8(6);
                write_list(&mut w, pools, |w, (pool, slots, tokens)| {
                    w.u64(pool.0);
                    w.u32(*slots);
                    w.u64(*tokens);
                });
            }
            Report::Heartbeat { received } => numbered(&mut w, 7, *received),
            Report::Announce { nonce, last, held, parked, levels } => {
                numbered(&mut w, 8, *nonce);
                w.u8(u8::from(*last));
                write_list(&mut w, held, |w, ticket| {
                    w.u64(ticket.number);
                    ticket.request.write(w);
                    write_list(w, &ticket.endpoints, |w, id| w.u64(id.0));
                    w.u64(ticket.dispatched_ms);
                });
                write_list(&mut w, parked, |w, ticket| {
                    w.u64(ticket.number);
                    ticket.request.write(w);
                    w.u8(u8::from(ticket.reserved));
                });
                write_list(&mut w, levels, |w, (level, at_ms)| {
                    Level::write_all(&[*level], w);
                    w.u64(*at_ms);
                });
            }
        }
        w.into_bytes()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If it is cut, has bytes left over, or is of a kind that this version does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let (epoch, incarnation, sequence) = (r.u64()?, r.u64()?, r.u64()?);
        let at = r.position();
        let ids = |r: &mut Reader<'_>| read_list(r, |r| Ok(EndpointId(r.u64()?)));
        let report = match r.u8()? {
            1 => Report::Acquire { number: r.u64()?, request: Request::read(&mut r)? },
            2 => Report::Admitted { number: r.u64()?, request: Request::read(&mut r)? },
            3 => Report::Placed { number: r.u64()?, endpoints: ids(&mut r)? },
            4 => Report::Release {
                number: r.u64()?,
                usage: Usage { prompt: r.u64()?, completion: r.u64()? },
                charged: {
                    let known = r.u8()? != 0;
                    Some(r.u64()?).filter(|_| known)
                },
            },
            5 => Report::Cancel { number: r.u64()?, reason: read_reason(&mut r)? },
            6 => Report::Return {
                pools: read_list(&mut r, |r| Ok((PoolKey(r.u64()?), r.u32()?, r.u64()?)))?,
            },
            7 => Report::Heartbeat { received: r.u64()? },
            8 => Report::Announce {
                nonce: r.u64()?,
                last: r.u8()? != 0,
                held: read_list(&mut r, |r| {
                    Ok(HeldTicket {
                        number: r.u64()?,
                        request: Request::read(r)?,
                        endpoints: ids(r)?,
                        dispatched_ms: r.u64()?,
                    })
                })?,
                parked: read_list(&mut r, |r| {
                    Ok(ParkedTicket {
                        number: r.u64()?,
                        request: Request::read(r)?,
                        reserved: r.u8()? != 0,
                    })
                })?,
                levels: read_list(&mut r, |r| {
                    let at = r.position();
                    let level = Level::read_all(r)?.first().copied();
                    Ok((level.ok_or(WireError::Unknown { at, value: 0 })?, r.u64()?))
                })?,
            },
            value => return Err(WireError::Unknown { at, value: value.into() }),
        };
        r.finish()?;
        Ok(Self { epoch, incarnation, sequence, report })
    }
}

impl ToWorker {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        head(&mut w, self.epoch, self.incarnation, self.sequence);
        let numbered = |w: &mut Writer, tag: u8, number: u64| {
            w.u8(tag);
            w.u64(number);
        };
        match &self.order {
            Order::Grant { number, levels } => {
                numbered(&mut w, 1, *number);
                Level::write_all(levels, &mut w);
            }
            Order::Waits { number, levels } => {
                numbered(&mut w, 2, *number);
                Level::write_all(levels, &mut w);
            }
            Order::Refuse { number, refused } => {
                numbered(&mut w, 3, *number);
                refused.write(&mut w);
            }
            Order::Evict { number } => numbered(&mut w, 4, *number),
            Order::Lease { pool, slots, tokens, until_ms } => {
                numbered(&mut w, 5, pool.0);
                w.u32(*slots);
                w.u64(*tokens);
                w.u64(*until_ms);
            }
            Order::Recall { pools } => {
                w.u8(6);
                write_list(&mut w, pools, |w, pool| w.u64(pool.0));
            }
            Order::AnnounceRequest { nonce } => numbered(&mut w, 7, *nonce),
        }
        w.into_bytes()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If it is cut, has bytes left over, or is of a kind that this version does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let (epoch, incarnation, sequence) = (r.u64()?, r.u64()?, r.u64()?);
        let at = r.position();
        let order = match r.u8()? {
            1 => Order::Grant { number: r.u64()?, levels: Level::read_all(&mut r)? },
            2 => Order::Waits { number: r.u64()?, levels: Level::read_all(&mut r)? },
            3 => Order::Refuse { number: r.u64()?, refused: Refused::read(&mut r)? },
            4 => Order::Evict { number: r.u64()? },
            5 => Order::Lease {
                pool: PoolKey(r.u64()?),
                slots: r.u32()?,
                tokens: r.u64()?,
                until_ms: r.u64()?,
            },
            6 => Order::Recall { pools: read_list(&mut r, |r| Ok(PoolKey(r.u64()?)))? },
            7 => Order::AnnounceRequest { nonce: r.u64()? },
            value => return Err(WireError::Unknown { at, value: value.into() }),
        };
        r.finish()?;
        Ok(Self { epoch, incarnation, sequence, order })
    }
}

fn head(w: &mut Writer, epoch: u64, incarnation: u64, sequence: u64) {
    w.u64(epoch);
    w.u64(incarnation);
    w.u64(sequence);
}

impl Refused {
    fn write(&self, w: &mut Writer) {
        match self {
            Self::Queue { reason, retry_after_ms } => {
                w.u8(reason.code());
                w.u64(*retry_after_ms);
            }
            Self::Budget(refusal) => {
                w.u8(DropReason::Budget.code());
                let (why, retry_after_ms) = match refusal.why {
                    Why::Short { retry_after_ms } => (0, retry_after_ms),
                    Why::TableFull => (1, 0),
                    Why::TooLarge => (2, 0),
                };
                w.u8(why);
                w.u64(retry_after_ms);
                Ask::write_all(&[refusal.ask], w);
                Level::write_all(&refusal.levels, w);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let reason = read_reason(r)?;
        if reason != DropReason::Budget {
            return Ok(Self::Queue { reason, retry_after_ms: r.u64()? });
        }
        let at = r.position();
        let (why, retry_after_ms) = (r.u8()?, r.u64()?);
        let why = match why {
            0 => Why::Short { retry_after_ms },
            1 => Why::TableFull,
            2 => Why::TooLarge,
            value => return Err(WireError::Unknown { at, value: value.into() }),
        };
        let at = r.position();
        let ask = Ask::read_all(r)?.first().copied().ok_or(WireError::Unknown { at, value: 0 })?;
        Ok(Self::Budget(Refusal { ask, why, levels: Level::read_all(r)? }))
    }
}

fn read_reason(r: &mut Reader<'_>) -> Result<DropReason, WireError> {
    let at = r.position();
    let code = r.u8()?;
    DropReason::of_code(code).ok_or(WireError::Unknown { at, value: code.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{BucketId, Kind};
    use proptest::prelude::*;

    fn ask() -> Ask {
        Ask { bucket: BucketId::new("a", "*", Kind::Tokens), limit: 9, amount: 2 }
    }

    fn level() -> Level {
        Level { bucket: BucketId::from_bits(5), limit: 9, balance: -3, reset_ms: 7 }
    }

    fn request() -> Request {
        Request {
            pool: PoolKey(7),
            priority: -10,
            flow: "tenant ✓".into(),
            tokens: 5,
            bytes: 6,
            since_ms: 7,
            deadline_ms: u64::MAX,
            slo_ms: 9,
            budgets: vec![ask()],
        }
    }

    fn reports() -> Vec<Report> {
        let held = HeldTicket {
            number: 1,
            request: request(),
            endpoints: vec![EndpointId(4)],
            dispatched_ms: 5,
        };
        let parked = ParkedTicket { number: 2, request: request(), reserved: true };
        vec![
            Report::Acquire { number: 1, request: request() },
            Report::Admitted { number: 1, request: request() },
            Report::Placed { number: 1, endpoints: vec![EndpointId(1), EndpointId(2)] },
            Report::Release {
                number: 1,
                usage: Usage { prompt: 3, completion: 4 },
                charged: Some(8),
            },
            Report::Release { number: 1, usage: Usage::default(), charged: None },
            Report::Cancel { number: 1, reason: DropReason::Cancelled },
            Report::Return { pools: vec![(PoolKey(1), 2, 3)] },
            Report::Heartbeat { received: 4 },
            Report::Announce {
                nonce: 1,
                last: true,
                held: vec![held],
                parked: vec![parked],
                levels: vec![(level(), 6)],
            },
        ]
    }

    fn orders() -> Vec<Order> {
        let refuse = |refused| Order::Refuse { number: 1, refused };
        let short = |why| Refused::Budget(Refusal { ask: ask(), why, levels: vec![level(); 4] });
        let mut orders = vec![
            Order::Grant { number: 1, levels: vec![level()] },
            Order::Waits { number: 1, levels: vec![level()] },
            refuse(short(Why::Short { retry_after_ms: 5 })),
            refuse(short(Why::TableFull)),
            refuse(short(Why::TooLarge)),
            Order::Evict { number: 1 },
            Order::Lease { pool: PoolKey(1), slots: 2, tokens: 3, until_ms: 5 },
            Order::Recall { pools: vec![PoolKey(1)] },
            Order::AnnounceRequest { nonce: 1 },
        ];
        orders.extend(
            DropReason::ALL
                .into_iter()
                .filter(|r| *r != DropReason::Budget)
                .map(|reason| refuse(Refused::Queue { reason, retry_after_ms: 9 })),
        );
        orders
    }

    crate::tests! {
        fn messages_come_back_as_written_and_cut_ones_do_not() {
            for report in reports() {
                let message = FromWorker { epoch: 1, incarnation: 2, sequence: 3, report };
                let bytes = message.encode();
                assert_eq!(FromWorker::decode(&bytes), Ok(message));
                assert!((0..bytes.len()).all(|len| FromWorker::decode(&bytes[..len]).is_err()));
            }
            for order in orders() {
                let message = ToWorker { epoch: 1, incarnation: 2, sequence: 3, order };
                let bytes = message.encode();
                assert_eq!(ToWorker::decode(&bytes), Ok(message));
                assert!((0..bytes.len()).all(|len| ToWorker::decode(&bytes[..len]).is_err()));
            }
        }

        fn a_reason_has_its_status_and_header() {
            for (reason, status, header) in [
                (DropReason::Saturated, 429, Some("rejected-saturated")),
                (DropReason::NoEndpoints, 503, Some("rejected-no-endpoints")),
                (DropReason::TtlExpired, 429, Some("rejected-ttl-expired")),
                (DropReason::TtlNoEndpoints, 503, Some("rejected-no-endpoints")),
                (DropReason::Cancelled, 503, Some("rejected-context-cancelled")),
                (DropReason::ShuttingDown, 503, Some("rejected-shutting-down")),
                (DropReason::Evicted, 429, Some("evicted")),
                (DropReason::Budget, 429, None),
            ] {
                assert_eq!((reason.status(), reason.header()), (status, header));
                assert_eq!(DropReason::of_code(reason.code()), Some(reason));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200),
            tag in 0u8..10,
        ) {
            let framed: Vec<u8> = [0; 24].into_iter().chain([tag]).chain(bytes).collect();
            if let Ok(message) = FromWorker::decode(&framed) {
                prop_assert_eq!(FromWorker::decode(&message.encode()), Ok(message));
            }
            if let Ok(message) = ToWorker::decode(&framed) {
                prop_assert_eq!(ToWorker::decode(&message.encode()), Ok(message));
            }
        }
    }
}
