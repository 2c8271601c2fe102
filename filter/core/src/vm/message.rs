//! What a VM tells the applier, over Envoy's shared queue.

use crate::flow_control::protocol::PoolKey;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::table_op::{Column, HashList};
use warmroute_shared_state::wire::{Reader, WireError, Writer};

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    /// A prompt went to the endpoint of this column: it holds (or will hold) these blocks.
    Picked {
        /// Where.
        column: Column,
        /// The prompt's chain.
        chain: HashList<'a>,
    },
    /// A rendered prompt went to the precise endpoint of this column: its events will tell these blocks.
    Expected {
        /// Its held column.
        column: Column,
        /// The prompt's byte stream.
        stream: u64,
        /// What it lacks of the prompt's chain.
        chain: HashList<'a>,
    },
    /// The request that was expected there is answered, or over without an answer.
    Settled {
        /// The endpoint's held column.
        column: Column,
        /// The last hash of what was expected.
        last: u64,
        /// It was answered: the prompt is computed.
        answered: bool,
    },
    /// It did not get there: another endpoint served the request. These blocks were new there.
    Unpicked {
        /// Where.
        column: Column,
        /// What to forget.
        chain: HashList<'a>,
    },
    /// Usage of a finished request: how many tokens its prompt had.
    Usage {
        /// Who served it.
        endpoint: EndpointId,
        /// Bytes of the prompt as hashed.
        prompt_bytes: u64,
        /// Tokens that the engine counted.
        prompt_tokens: u32,
    },
    /// A session is at this endpoint, and in use.
    Session {
        /// Of the requests of this pool.
        pool: PoolKey,
        /// Name of the plugin that keeps it there.
        plugin: &'a str,
        /// Hash of the session's ID.
        session: u64,
        /// Where.
        endpoint: EndpointId,
    },
    /// A worker's report to the dispatcher.
    Flow {
        /// Its row's slot, after which the queue for answers is named.
        slot: u16,
        /// As [`FromWorker`](crate::flow_control::protocol::FromWorker) writes it.
        report: &'a [u8],
    },
    /// Fault injection, for tests: trap now.
    Trap,
}

impl<'a> Message<'a> {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Picked { column, chain } => write_chain(&mut w, 1, *column, chain),
            Self::Unpicked { column, chain } => write_chain(&mut w, 2, *column, chain),
            Self::Usage { endpoint, prompt_bytes, prompt_tokens } => {
                w.u8(3);
                w.u64(endpoint.0);
                w.u64(*prompt_bytes);
                w.u32(*prompt_tokens);
            }
            Self::Trap => w.u8(4),
            Self::Expected { column, stream, chain } => {
                write_chain(&mut w, 5, *column, chain);
                w.u64(*stream);
            }
            Self::Session { pool, plugin, session, endpoint } => {
                w.u8(7);
                w.u64(pool.0);
                w.text(plugin);
                w.u64(*session);
                w.u64(endpoint.0);
            }
            Self::Flow { slot, report } => {
                w.u8(8);
                w.u16(*slot);
                w.u32(u32::try_from(report.len()).unwrap_or(u32::MAX));
                w.bytes(report);
            }
            Self::Settled { column, last, answered } => {
                w.u8(6);
                w.u16(column.0);
                w.u64(*last);
                w.u8(u8::from(*answered));
            }
        }
        w.into_bytes()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If it is cut or of a kind that this version does not know.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            1 => Self::Picked { column: Column(r.u16()?), chain: HashList::Wire(r.hashes()?) },
            2 => Self::Unpicked { column: Column(r.u16()?), chain: HashList::Wire(r.hashes()?) },
            3 => Self::Usage {
                endpoint: EndpointId(r.u64()?),
                prompt_bytes: r.u64()?,
                prompt_tokens: r.u32()?,
            },
            4 => Self::Trap,
            5 => {
                let (column, chain) = (Column(r.u16()?), HashList::Wire(r.hashes()?));
                Self::Expected { column, chain, stream: r.u64()? }
            }
            6 => Self::Settled { column: Column(r.u16()?), last: r.u64()?, answered: r.u8()? != 0 },
            7 => Self::Session {
                pool: PoolKey(r.u64()?),
                plugin: r.text()?,
                session: r.u64()?,
                endpoint: EndpointId(r.u64()?),
            },
            8 => {
                let (slot, len) = (r.u16()?, r.u32()? as usize);
                Self::Flow { slot, report: r.bytes(len)? }
            }
            value => return Err(WireError::Unknown { at: 0, value: value.into() }),
        };
        r.finish()?;
        Ok(message)
    }
}

/// Bytes of a chain's other fields at most, and of its length in a parcel.
const CHAIN_FIELDS: usize = 24;

fn write_chain(w: &mut Writer, tag: u8, column: Column, chain: &HashList<'_>) {
    // A chain may be long: room for exactly it, and for what goes before and behind.
    w.reserve(chain.len().saturating_mul(8).saturating_add(CHAIN_FIELDS));
    w.u8(tag);
    w.u16(column.0);
    chain.write(w);
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn messages_come_back_as_written() {
            let chain = [1, 2, u64::MAX];
            for message in [
                Message::Picked { column: Column(3), chain: HashList::Slice(&chain) },
                Message::Unpicked { column: Column(4), chain: HashList::Slice(&[]) },
                Message::Usage { endpoint: EndpointId(1), prompt_bytes: 2, prompt_tokens: 3 },
                Message::Trap,
                Message::Expected { column: Column(5), stream: 8, chain: HashList::Slice(&chain) },
                Message::Settled { column: Column(6), last: 9, answered: true },
                Message::Flow { slot: 7, report: b"report" },
                Message::Session { pool: PoolKey(2), plugin: "p", session: 3, endpoint: EndpointId(4) },
            ] {
                let bytes = message.encode();
                assert_eq!(Message::decode(&bytes), Ok(message));
                for len in 0..bytes.len() {
                    assert!(Message::decode(&bytes[..len]).is_err());
                }
            }
        }
    }
}
