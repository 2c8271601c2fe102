//! What agent and filter both know of an endpoint: one engine replica behind one address.

use crate::wire::{Reader, WireError, Writer};

/// Identity of an endpoint: XXH3-64 of its name and address. A re-addressed endpoint is another
/// one, and the same endpoint keeps its identity when the agent restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u64);

impl EndpointId {
    /// The identity of the endpoint `namespace/name` at `address` (`ip:port`).
    #[must_use]
    pub fn new(namespace: &str, name: &str, address: &str) -> Self {
        let mut writer = Writer::new();
        writer.string(namespace);
        writer.string(name);
        writer.string(address);
        Self(xxhash_rust::xxh3::xxh3_64(writer.as_bytes()))
    }
}

/// Whether an endpoint may be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It answers.
    Ready,
    /// It refused connections or did not answer its last scrapes: not picked until it answers.
    Out,
}

/// An endpoint as the agent describes it. Sent whole whenever a field changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRecord {
    /// Identity.
    pub id: EndpointId,
    /// Changes whenever what the endpoint has cached is void: engine restarted, endpoint was out.
    pub generation: u64,
    /// `namespace/name`.
    pub name: String,
    /// `ip:port`, IPv6 in brackets, as Envoy's cluster names the host.
    pub address: String,
    /// May it be picked?
    pub availability: Availability,
    /// Tokens in one KV block of the engine; 0 = not known.
    pub block_tokens: u32,
    /// KV blocks of the engine; 0 = not known.
    pub kv_blocks: u32,
    /// Its KV events are followed without a gap: what it holds is known, not guessed. Changes only
    /// together with `generation`.
    pub precise: bool,
    /// What a block in a slower tier (CPU, storage) is worth against one in the device's memory, in
    /// percent; 0 = it has no such tier. Changes only together with `generation`.
    pub lower_tier_percent: u8,
    /// Labels, sorted by key.
    pub labels: Vec<(String, String)>,
    /// Pools that it is in, `namespace/name`; empty if there are no pools.
    pub pools: Vec<String>,
}

impl EndpointRecord {
    /// KV capacity in tokens, if the engine reported it.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<u64> {
        let tokens = u64::from(self.block_tokens).saturating_mul(u64::from(self.kv_blocks));
        (tokens > 0).then_some(tokens)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u64(self.id.0);
        w.u64(self.generation);
        w.string(&self.name);
        w.string(&self.address);
        w.u8(match self.availability {
            Availability::Ready => 0,
            Availability::Out => 1,
        });
        w.u32(self.block_tokens);
        w.u32(self.kv_blocks);
        w.u8(u8::from(self.precise));
        w.u8(self.lower_tier_percent);
        w.u16(u16::try_from(self.labels.len()).unwrap_or(u16::MAX));
        for (key, value) in self.labels.iter().take(usize::from(u16::MAX)) {
            w.string(key);
            w.string(value);
        }
        w.u16(u16::try_from(self.pools.len()).unwrap_or(u16::MAX));
        self.pools.iter().take(usize::from(u16::MAX)).for_each(|pool| w.string(pool));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let id = EndpointId(r.u64()?);
        let generation = r.u64()?;
        let name = r.string()?.to_owned();
        let address = r.string()?.to_owned();
        let at = r.position();
        let availability = match r.u8()? {
            0 => Availability::Ready,
            1 => Availability::Out,
            value => return Err(WireError::Unknown { at, value: value.into() }),
        };
        let block_tokens = r.u32()?;
        let kv_blocks = r.u32()?;
        let precise = r.u8()? != 0;
        let lower_tier_percent = r.u8()?.min(100);
        let count = r.u16()?;
        let mut labels = Vec::new();
        for _ in 0..count {
            labels.push((r.string()?.to_owned(), r.string()?.to_owned()));
        }
        let mut pools = Vec::new();
        for _ in 0..r.u16()? {
            pools.push(r.string()?.to_owned());
        }
        Ok(Self {
            id,
            generation,
            name,
            address,
            availability,
            block_tokens,
            kv_blocks,
            precise,
            lower_tier_percent,
            labels,
            pools,
        })
    }
}

/// What one scrape of an endpoint said. A signal that was missing or not a number is `None`:
/// neutral, neither full nor idle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Requests that wait in the engine.
    pub waiting: Option<f32>,
    /// Requests that the engine runs.
    pub running: Option<f32>,
    /// Share of KV blocks in use by running requests, 0 to 1.
    pub kv_usage: Option<f32>,
}

impl Load {
    pub(crate) fn write(&self, w: &mut Writer) {
        w.optional_f32(self.waiting);
        w.optional_f32(self.running);
        w.optional_f32(self.kv_usage);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            waiting: r.optional_f32()?,
            running: r.optional_f32()?,
            kv_usage: r.optional_f32()?,
        })
    }
}

#[cfg(test)]
pub(crate) fn sample(n: u8) -> EndpointRecord {
    let address = format!("127.0.0.1:{}", 9000 + u16::from(n));
    EndpointRecord {
        id: EndpointId::new("default", &format!("r{n}"), &address),
        generation: u64::from(n) << 40,
        name: format!("default/r{n}"),
        address,
        availability: if n.is_multiple_of(2) { Availability::Ready } else { Availability::Out },
        block_tokens: 16,
        kv_blocks: 10_000,
        precise: n.is_multiple_of(3),
        lower_tier_percent: n,
        labels: vec![("app".into(), "vllm".into()), ("zone".into(), String::new())],
        pools: vec!["default/p".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_record_comes_back_as_written() {
            for n in 0..4 {
                let mut w = Writer::new();
                sample(n).write(&mut w);
                let bytes = w.into_bytes();
                let mut r = Reader::new(&bytes);
                assert_eq!(EndpointRecord::read(&mut r).unwrap(), sample(n));
                assert_eq!(r.finish(), Ok(()));
            }
        }

        fn identity_depends_on_each_part() {
            let ids = [
                EndpointId::new("a", "b", "c"),
                EndpointId::new("ab", "", "c"),
                EndpointId::new("a", "bc", ""),
                EndpointId::new("a", "b", "d"),
            ];
            for (i, x) in ids.iter().enumerate() {
                assert!(ids[i + 1..].iter().all(|y| x != y));
            }
        }

        fn a_signal_that_is_not_a_number_is_absent() {
            let mut w = Writer::new();
            for value in [f32::NAN, f32::INFINITY, 0.25] {
                w.bytes(&value.to_le_bytes());
            }
            let bytes = w.into_bytes();
            let load = Load::read(&mut Reader::new(&bytes)).unwrap();
            assert_eq!(load, Load { waiting: None, running: None, kv_usage: Some(0.25) });
        }
    }
}
