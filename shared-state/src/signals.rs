//! What an engine says of itself beyond its load: LoRA adapters, and metrics that the configuration names.

use crate::wire::{Reader, WireError, Writer};

/// Adapters in one list, and attributes, at most: what is beyond is cut off.
pub const MAX_SIGNALS: usize = 256;
/// Bytes of an adapter's name or an attribute's key at most.
pub const MAX_NAME_BYTES: usize = 256;
/// Bytes of all names and keys of an endpoint together: its signals travel in one frame between Envoy's workers
/// ([`FRAME_BYTES`](crate::frame::FRAME_BYTES)). What is beyond is cut off, running adapters last.
pub const MAX_BYTES: usize = 12 << 10;

/// LoRA adapters of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adapters {
    /// Adapters of running requests.
    pub active: Vec<String>,
    /// Adapters of waiting requests.
    pub waiting: Vec<String>,
    /// How many the engine can run at once.
    pub max: u32,
}

/// Slow signals of an endpoint. Sent whole whenever one changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Signals {
    /// If the engine says anything of adapters.
    pub adapters: Option<Adapters>,
    /// Numeric attributes by key (`customMetrics` of `core-metrics-extractor`), sorted by key.
    pub attributes: Vec<(String, f64)>,
}

impl Signals {
    /// The attribute of this key.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<f64> {
        self.attributes.iter().find(|(known, _)| known == key).map(|(_, value)| *value)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        let mut room = MAX_BYTES;
        w.u8(u8::from(self.adapters.is_some()));
        if let Some(adapters) = &self.adapters {
            for names in [&adapters.active, &adapters.waiting] {
                let names = fitting(names, |name| name.len().saturating_add(2), &mut room);
                w.u16(u16::try_from(names.len()).unwrap_or(u16::MAX));
                names.iter().for_each(|name| w.string(name));
            }
            w.u32(adapters.max);
        }
        let attributes =
            fitting(&self.attributes, |(key, _)| key.len().saturating_add(10), &mut room);
        w.u16(u16::try_from(attributes.len()).unwrap_or(u16::MAX));
        for (key, value) in attributes {
            w.string(key);
            w.u64(value.to_bits());
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let adapters = if r.u8()? == 0 {
            None
        } else {
            let mut lists = [Vec::new(), Vec::new()];
            for names in &mut lists {
                for _ in 0..r.u16()? {
                    names.push(r.string()?.to_owned());
                }
            }
            let [active, waiting] = lists;
            Some(Adapters { active, waiting, max: r.u32()? })
        };
        let mut attributes = Vec::new();
        for _ in 0..r.u16()? {
            let key = r.string()?.to_owned();
            let value = f64::from_bits(r.u64()?);
            if value.is_finite() {
                attributes.push((key, value));
            }
        }
        Ok(Self { adapters, attributes })
    }
}

/// As many of the first items as there may be and as there is `room` for, which they then take.
fn fitting<'a, T>(items: &'a [T], size: impl Fn(&T) -> usize, room: &mut usize) -> &'a [T] {
    let mut count = 0usize;
    for item in items.iter().take(MAX_SIGNALS) {
        let Some(left) = room.checked_sub(size(item)) else { break };
        *room = left;
        count = count.saturating_add(1);
    }
    items.get(..count).unwrap_or_default()
}

#[cfg(test)]
pub(crate) fn sample() -> Signals {
    Signals {
        adapters: Some(Adapters {
            active: vec!["a".into()],
            waiting: vec!["b".into(), "c".into()],
            max: 4,
        }),
        attributes: vec![("x".into(), 0.5), ("y".into(), -3.0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(signals: &Signals) -> Vec<u8> {
        let mut w = Writer::new();
        signals.write(&mut w);
        w.into_bytes()
    }

    fn read(bytes: &[u8]) -> Signals {
        let mut r = Reader::new(bytes);
        let signals = Signals::read(&mut r).unwrap();
        assert_eq!(r.finish(), Ok(()));
        signals
    }

    crate::tests! {
        fn signals_come_back_as_written() {
            for signals in [Signals::default(), sample()] {
                assert_eq!(read(&written(&signals)), signals);
            }
        }

        fn an_attribute_that_is_not_a_number_is_not_there() {
            let mut signals = sample();
            signals.attributes = vec![("x".into(), f64::NAN), ("y".into(), 2.0)];
            assert_eq!(read(&written(&signals)).attributes, [("y".to_owned(), 2.0)]);
        }

        fn however_much_an_engine_says_it_fits_into_a_frame() {
            let names = |len: usize| (0..1000).map(|n| format!("{n:0len$}")).collect::<Vec<_>>();
            for len in [4, 250] {
                let signals = Signals {
                    adapters: Some(Adapters { active: names(len), waiting: names(len), max: 2 }),
                    attributes: names(len).into_iter().map(|name| (name, 1.0)).collect(),
                };
                let bytes = written(&signals);
                assert!(bytes.len() < MAX_BYTES + 64, "{}", bytes.len());
                let adapters = read(&bytes).adapters.unwrap();
                assert!(!adapters.active.is_empty(), "running adapters go last");
                assert!(adapters.active.len() >= adapters.waiting.len());
            }
        }
    }
}
