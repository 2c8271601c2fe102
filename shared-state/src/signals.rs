//! What an engine says of itself beyond its load: LoRA adapters, and metrics that the configuration names.

use crate::wire::{Reader, WireError, Writer};

/// Adapters in one list, and attributes, at most: what is beyond is cut off.
pub const MAX_SIGNALS: usize = 256;

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
        w.u8(u8::from(self.adapters.is_some()));
        if let Some(adapters) = &self.adapters {
            for names in [&adapters.active, &adapters.waiting] {
                let names = names.get(..MAX_SIGNALS).unwrap_or(names);
                w.u16(u16::try_from(names.len()).unwrap_or(u16::MAX));
                names.iter().for_each(|name| w.string(name));
            }
            w.u32(adapters.max);
        }
        let attributes = self.attributes.get(..MAX_SIGNALS).unwrap_or(&self.attributes);
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
