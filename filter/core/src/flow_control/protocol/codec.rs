//! The messages' bytes.

use super::request::{read_list, write_list};
use super::{
    DropReason, FromWorker, HeldTicket, Order, ParkedTicket, PoolKey, Refused, Report, Request,
    ToWorker, Usage,
};
use crate::quota::{Ask, BucketId, Level, Refusal, Why};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::wire::{Reader, WireError, Writer};

impl FromWorker {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        head(&mut w, self.epoch, self.incarnation, self.sequence);
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
            Report::Cancel { number } => numbered(&mut w, 5, *number),
            Report::Return { pools, budgets } => {
                w.u8(6);
                write_list(&mut w, pools, |w, (pool, slots, tokens)| {
                    w.u64(pool.0);
                    w.u32(*slots);
                    w.u64(*tokens);
                });
                write_list(&mut w, budgets, |w, ask| Ask::write_all(&[*ask], w));
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
            5 => Report::Cancel { number: r.u64()? },
            6 => Report::Return {
                pools: read_list(&mut r, |r| Ok((PoolKey(r.u64()?), r.u32()?, r.u64()?)))?,
                budgets: read_list(&mut r, read_ask)?,
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
            Order::Recall { pools, budgets } => {
                w.u8(6);
                write_list(&mut w, pools, |w, pool| w.u64(pool.0));
                write_list(&mut w, budgets, |w, bucket| w.u64(bucket.to_bits()));
            }
            Order::LeaseBudgets { lent, levels, until_ms } => {
                w.u8(8);
                Ask::write_all(lent, &mut w);
                Level::write_all(levels, &mut w);
                w.u64(*until_ms);
            }
            Order::AnnounceRequest { nonce } => numbered(&mut w, 7, *nonce),
            Order::Levels { levels } => {
                w.u8(9);
                Level::write_all(levels, &mut w);
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
            6 => Order::Recall {
                pools: read_list(&mut r, |r| Ok(PoolKey(r.u64()?)))?,
                budgets: read_list(&mut r, |r| Ok(BucketId::from_bits(r.u64()?)))?,
            },
            8 => Order::LeaseBudgets {
                lent: Ask::read_all(&mut r)?,
                levels: Level::read_all(&mut r)?,
                until_ms: r.u64()?,
            },
            7 => Order::AnnounceRequest { nonce: r.u64()? },
            9 => Order::Levels { levels: Level::read_all(&mut r)? },
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

/// What most reports and orders begin with: their kind and a number.
fn numbered(w: &mut Writer, tag: u8, number: u64) {
    w.u8(tag);
    w.u64(number);
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
        let ask = read_ask(r)?;
        Ok(Self::Budget(Refusal { ask, why, levels: Level::read_all(r)? }))
    }
}

fn read_ask(r: &mut Reader<'_>) -> Result<Ask, WireError> {
    let at = r.position();
    Ask::read_all(r)?.first().copied().ok_or(WireError::Unknown { at, value: 0 })
}

fn read_reason(r: &mut Reader<'_>) -> Result<DropReason, WireError> {
    let at = r.position();
    let code = r.u8()?;
    DropReason::of_code(code).ok_or(WireError::Unknown { at, value: code.into() })
}
