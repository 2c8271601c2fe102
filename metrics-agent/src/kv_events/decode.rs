//! A payload of an engine's event stream, in every encoding that engines have used.
//!
//! A batch is `[time, events, rank?]`. An event is a tagged array (vLLM up to 0.16, SGLang) or a
//! map with the key `type` at any place (vLLM later). Fields that are missing, unknown or too
//! many are all fine: engines of several versions run side by side during an upgrade.
//!
//! An event that cannot be read is counted and passed over. What is kept of a batch never takes
//! more than a small multiple of its bytes.

use super::event::{Batch, BlockHash, Event, ExtraKey, GroupKind, Medium, Removed, Stored};
use super::msgpack::{Malformed, Reader, Token};

/// Fewest bytes of an event: that many can follow at most in what is left of a payload.
const SHORTEST_EVENT: usize = 16;

/// Why a payload is no batch at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// It is not MessagePack to the end.
    #[error("{0}; is this port an engine's KV event publisher?")]
    Malformed(#[from] Malformed),
    /// It is something else than `[time, [event, …], …]`.
    #[error("the payload is no batch of events; is this port an engine's KV event publisher?")]
    NoBatch,
}

/// Reads a payload.
///
/// # Errors
/// If not even the list of events was found.
pub fn batch(payload: &[u8]) -> Result<Batch, Undecodable> {
    let mut reader = Reader::new(payload);
    let Token::Array(parts @ 2..) = reader.token()? else { return Err(Undecodable::NoBatch) };
    let at = match reader.token()? {
        Token::Float(at) => at,
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds is small")]
        Token::Uint(at) => at as f64,
        _ => return Err(Undecodable::NoBatch),
    };
    let Token::Array(count) = reader.token()? else { return Err(Undecodable::NoBatch) };
    let mut batch = Batch { at, events: Vec::new(), rank: None, undecodable: 0 };
    batch.events.reserve(at_most(count, reader.remaining() / SHORTEST_EVENT));
    for _ in 0..count {
        let start = reader;
        match event(&mut reader) {
            Ok(event) => batch.events.push(event),
            Err(fault) => {
                batch.undecodable = batch.undecodable.saturating_add(1);
                reader = start;
                // Where the frame itself is broken nothing after it can be found.
                if matches!(fault, Fault::Malformed) || reader.skip().is_err() {
                    return Ok(batch);
                }
            }
        }
    }
    if parts > 2
        && let Ok(Token::Uint(rank)) = reader.token()
    {
        batch.rank = u32::try_from(rank).ok();
    }
    Ok(batch)
}

/// Why an event was given up.
enum Fault {
    Malformed,
    /// A type that we don't know, or a field with a value that it cannot have.
    Meaning,
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Fields as they were found, whatever their order.
#[derive(Default)]
struct Fields<'a> {
    tag: Option<&'a [u8]>,
    hashes: Option<Vec<BlockHash>>,
    parent: Option<BlockHash>,
    tokens: Option<Vec<u32>>,
    block_size: Option<u32>,
    medium: Medium,
    adapter: Option<String>,
    extra_keys: Vec<Vec<ExtraKey>>,
    group: u32,
    kind: GroupKind,
}

#[derive(Clone, Copy)]
enum Field {
    Tag,
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    Medium,
    Adapter,
    ExtraKeys,
    Group,
    Kind,
    Other,
}

/// Positions in tagged arrays, after the tag.
const STORED_ORDER: [Field; 10] = [
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::Other,
    Field::Medium,
    Field::Adapter,
    Field::ExtraKeys,
    Field::Group,
    Field::Kind,
];
const REMOVED_ORDER: [Field; 3] = [Field::Hashes, Field::Medium, Field::Group];

fn event(reader: &mut Reader<'_>) -> Result<Event, Fault> {
    let mut fields = Fields::default();
    match reader.token()? {
        Token::Map(pairs) => {
            for _ in 0..pairs {
                let field = match reader.token()? {
                    Token::Text(name) => named(name),
                    key => {
                        reader.skip_rest(key)?;
                        Field::Other
                    }
                };
                fields.read(field, reader)?;
            }
        }
        Token::Array(len @ 1..) => {
            fields.read(Field::Tag, reader)?;
            let order: &[Field] = match fields.tag {
                Some(b"BlockStored") => &STORED_ORDER,
                Some(b"BlockRemoved") => &REMOVED_ORDER,
                _ => &[],
            };
            let order = order.iter().copied().chain(std::iter::repeat(Field::Other));
            for (_, field) in (1..len).zip(order) {
                fields.read(field, reader)?;
            }
        }
        _ => return Err(Fault::Meaning),
    }
    fields.event()
}

fn named(name: &[u8]) -> Field {
    match name {
        b"type" => Field::Tag,
        b"block_hashes" => Field::Hashes,
        b"parent_block_hash" => Field::Parent,
        b"token_ids" => Field::Tokens,
        b"block_size" => Field::BlockSize,
        b"medium" => Field::Medium,
        b"lora_name" => Field::Adapter,
        b"extra_keys" => Field::ExtraKeys,
        b"group_idx" => Field::Group,
        b"kv_cache_spec_kind" => Field::Kind,
        _ => Field::Other,
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self, field: Field, reader: &mut Reader<'a>) -> Result<(), Fault> {
        match field {
            Field::Tag => self.tag = text(reader)?,
            Field::Hashes => self.hashes = Some(hashes(reader)?),
            Field::Parent => {
                self.parent = match reader.token()? {
                    Token::Nil => None,
                    token => Some(hash(token)?),
                };
            }
            Field::Tokens => self.tokens = Some(tokens(reader)?),
            Field::BlockSize => self.block_size = number(reader)?,
            Field::Medium => {
                self.medium = match text(reader)? {
                    None | Some(b"") => Medium::Device,
                    Some(name) if name.eq_ignore_ascii_case(b"gpu") => Medium::Device,
                    Some(_) => Medium::Lower,
                };
            }
            Field::Adapter => {
                let name = text(reader)?.filter(|name| !name.is_empty());
                self.adapter = name.map(utf8).transpose()?;
            }
            Field::ExtraKeys => self.extra_keys = extra_keys(reader)?,
            Field::Group => self.group = number(reader)?.unwrap_or(0),
            Field::Kind => {
                self.kind = match text(reader)? {
                    None | Some(b"") => GroupKind::Unsaid,
                    Some(b"full_attention" | b"mla_attention" | b"sink_full_attention") => {
                        GroupKind::Full
                    }
                    Some(_) => GroupKind::Other,
                };
            }
            Field::Other => reader.skip()?,
        }
        Ok(())
    }

    fn event(self) -> Result<Event, Fault> {
        match self.tag {
            Some(b"BlockStored") => Ok(Event::Stored(Stored {
                hashes: self.hashes.ok_or(Fault::Meaning)?,
                parent: self.parent,
                tokens: self.tokens.ok_or(Fault::Meaning)?,
                block_size: self.block_size.filter(|size| *size > 0).ok_or(Fault::Meaning)?,
                medium: self.medium,
                adapter: self.adapter,
                extra_keys: self.extra_keys,
                group: self.group,
                kind: self.kind,
            })),
            Some(b"BlockRemoved") => Ok(Event::Removed(Removed {
                hashes: self.hashes.ok_or(Fault::Meaning)?,
                medium: self.medium,
                group: self.group,
            })),
            Some(b"AllBlocksCleared") => Ok(Event::Cleared),
            _ => Err(Fault::Meaning),
        }
    }
}

fn at_most(announced: u32, possible: usize) -> usize {
    usize::try_from(announced).unwrap_or(usize::MAX).min(possible)
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Fault> {
    match reader.token()? {
        Token::Text(text) => Ok(Some(text)),
        Token::Nil => Ok(None),
        _ => Err(Fault::Meaning),
    }
}

fn utf8(text: &[u8]) -> Result<String, Fault> {
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| Fault::Meaning)
}

fn number(reader: &mut Reader<'_>) -> Result<Option<u32>, Fault> {
    match reader.token()? {
        Token::Uint(number) => u32::try_from(number).map(Some).map_err(|_| Fault::Meaning),
        Token::Nil => Ok(None),
        _ => Err(Fault::Meaning),
    }
}

/// An integer of either sign by its bits, or the last 8 bytes of a byte string: the same 64 bits
/// that vLLM sends as an integer.
fn hash(token: Token<'_>) -> Result<BlockHash, Fault> {
    match token {
        Token::Uint(hash) => Ok(hash),
        Token::Negative(hash) => Ok(hash.cast_unsigned()),
        Token::Bytes(bytes) if !bytes.is_empty() => {
            let last = bytes.get(bytes.len().saturating_sub(8)..).unwrap_or(bytes);
            Ok(last.iter().fold(0, |hash, byte| (hash << 8) | BlockHash::from(*byte)))
        }
        _ => Err(Fault::Meaning),
    }
}

fn hashes(reader: &mut Reader<'_>) -> Result<Vec<BlockHash>, Fault> {
    let Token::Array(count) = reader.token()? else { return Err(Fault::Meaning) };
    let mut hashes = Vec::with_capacity(at_most(count, reader.remaining()));
    for _ in 0..count {
        hashes.push(hash(reader.token()?)?);
    }
    Ok(hashes)
}

/// Token ids. An integer that no vocabulary can have becomes [`u32::MAX`], which has no bytes
/// either: it ends the chain there and not the event.
fn tokens(reader: &mut Reader<'_>) -> Result<Vec<u32>, Fault> {
    let Token::Array(count) = reader.token()? else { return Err(Fault::Meaning) };
    let mut tokens = Vec::with_capacity(at_most(count, reader.remaining()));
    for _ in 0..count {
        tokens.push(match reader.token()? {
            Token::Uint(id) => u32::try_from(id).unwrap_or(u32::MAX),
            Token::Negative(_) => u32::MAX,
            _ => return Err(Fault::Meaning),
        });
    }
    Ok(tokens)
}

/// Per block a list of keys or nothing; empty as a whole if no block has any.
fn extra_keys(reader: &mut Reader<'_>) -> Result<Vec<Vec<ExtraKey>>, Fault> {
    let count = match reader.token()? {
        Token::Array(count) => count,
        Token::Nil => return Ok(Vec::new()),
        _ => return Err(Fault::Meaning),
    };
    let mut blocks: Vec<Vec<ExtraKey>> = Vec::new();
    for index in 0..at_most(count, usize::MAX) {
        let keys = match reader.token()? {
            Token::Array(keys) => {
                let mut of_block = Vec::new();
                for _ in 0..keys {
                    let token = reader.token()?;
                    of_block.extend(extra_key(token, reader)?);
                }
                of_block
            }
            token => extra_key(token, reader)?.into_iter().collect(),
        };
        if !keys.is_empty() {
            // Most blocks have none, and then nothing is allocated for any.
            blocks.resize_with(index, Vec::new);
            blocks.push(keys);
        }
    }
    if !blocks.is_empty() {
        blocks.resize_with(at_most(count, usize::MAX), Vec::new);
    }
    Ok(blocks)
}

fn extra_key(token: Token<'_>, reader: &mut Reader<'_>) -> Result<Option<ExtraKey>, Fault> {
    Ok(match token {
        Token::Nil => None,
        Token::Text(text) => Some(ExtraKey::Text(utf8(text)?)),
        token => {
            reader.skip_rest(token)?;
            Some(ExtraKey::Opaque)
        }
    })
}

#[cfg(test)]
pub(crate) mod tests;
