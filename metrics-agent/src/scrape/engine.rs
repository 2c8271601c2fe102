//! What an exposition says of its engine.
//!
//! Several series of one family on one port are the ranks of one endpoint (data parallel).
//! Queues are **summed**: a request sent here waits behind all of them as far as we can tell.
//! KV usage is **averaged**: the engine itself balances over its ranks, so one full rank does not
//! make the endpoint full, and the mean is the used share of all its blocks; an attribute is averaged
//! too, for it may be a share. (llm-d reads the first series only.) Blocks are **not** summed: vLLM
//! already states the total of all ranks in each rank's series (two ranks of 160 blocks say 320 twice).

use super::exposition::{self, Sample};
use super::mapping::Mapping;
use warmroute_shared_state::endpoint::Load;
use warmroute_shared_state::signals::{Adapters, MAX_NAME_BYTES, MAX_SIGNALS, Signals};

const PROCESS_START: &[u8] = b"process_start_time_seconds";

/// When an engine started, in milliseconds since 1970. Times of different origin are not
/// compared: a series is created some time after its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTime {
    /// `process_start_time_seconds`.
    Process(u64),
    /// The oldest `_created` series.
    Created(u64),
}

impl StartTime {
    /// Milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        match self {
            Self::Process(millis) | Self::Created(millis) => millis,
        }
    }

    /// Whether an engine that reported `earlier` has been restarted since.
    #[must_use]
    pub fn is_restart_since(self, earlier: Self) -> bool {
        match (earlier, self) {
            (Self::Process(earlier), Self::Process(now))
            | (Self::Created(earlier), Self::Created(now)) => now > earlier,
            _ => false,
        }
    }
}

/// What one exposition said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// The load. What is missing, renamed or not a number is `None`.
    pub load: Load,
    /// LoRA adapters and attributes; what is missing or not a number is not there.
    pub signals: Signals,
    /// Tokens in a KV block.
    pub block_tokens: Option<u32>,
    /// KV blocks of all ranks.
    pub kv_blocks: Option<u32>,
    /// When the engine started.
    pub start: Option<StartTime>,
    /// Every signal of load that the engine should tell is there.
    pub is_whole: bool,
}

/// Reads an exposition. `None` if there is nothing of this engine in it (blank, cut, not its page).
#[must_use]
pub fn read(text: &[u8], mapping: &Mapping) -> Option<Reading> {
    let mut found = Found::new(mapping);
    let wanted = |name: &[u8]| name == PROCESS_START || mapping.wants(name);
    for sample in exposition::samples(text, wanted) {
        found.add(&sample);
    }
    found.any.then(|| found.reading())
}

/// What was found of a mapping so far.
struct Found<'a> {
    mapping: &'a Mapping,
    any: bool,
    waiting: Series,
    running: Series,
    /// By the place in the mapping's list.
    usage: Vec<Series>,
    attributes: Vec<Series>,
    /// Labels of the adapters' series with the highest value.
    adapters: Option<(f64, &'a [u8])>,
    block_tokens: Option<u32>,
    kv_blocks: Option<u32>,
    process_start: Option<f64>,
    created: Option<f64>,
}

impl<'a> Found<'a> {
    fn new(mapping: &'a Mapping) -> Self {
        Self {
            mapping,
            any: false,
            waiting: Series::default(),
            running: Series::default(),
            usage: vec![Series::default(); mapping.kv_usage.len()],
            attributes: vec![Series::default(); mapping.attributes.len()],
            adapters: None,
            block_tokens: None,
            kv_blocks: None,
            process_start: None,
            created: None,
        }
    }

    /// Takes in a series. One may be meant by several selectors.
    fn add(&mut self, sample: &Sample<'a>) {
        let Sample { name, labels, value } = *sample;
        self.any = true;
        if name == PROCESS_START {
            self.process_start = Some(value);
        } else if self.mapping.is_own_created(name) {
            self.created = Some(self.created.map_or(value, |oldest| oldest.min(value)));
        }
        let Mapping { waiting, running, kv_usage, adapters, cache_info, .. } = self.mapping;
        let series = [(waiting, &mut self.waiting), (running, &mut self.running)];
        let one =
            series.into_iter().filter_map(|(selector, series)| Some((selector.as_ref()?, series)));
        let of_usage = kv_usage.iter().zip(&mut self.usage);
        let attributes = self.mapping.attributes.iter().map(|(_, selector)| selector);
        for (selector, series) in one.chain(of_usage).chain(attributes.zip(&mut self.attributes)) {
            if selector.selects(name, labels) {
                series.add(value);
            }
        }
        let meant = |selector: &Option<_>| {
            selector.as_ref().is_some_and(|s: &super::selector::Selector| s.selects(name, labels))
        };
        if meant(adapters)
            && !value.is_nan()
            && self.adapters.is_none_or(|(highest, _)| value > highest)
        {
            self.adapters = Some((value, labels));
        }
        if let Some(info) = cache_info
            && info.family.selects(name, labels)
        {
            let number = |key: &str| exposition::label(labels, key)?.trim().parse::<u32>().ok();
            self.block_tokens = self.block_tokens.or(number(&info.block_tokens_label));
            self.kv_blocks = self.kv_blocks.max(number(&info.kv_blocks_label));
        }
        if meant(&self.mapping.block_tokens) {
            self.block_tokens = self.block_tokens.or(whole(value));
        }
        if meant(&self.mapping.kv_blocks) {
            self.kv_blocks = self.kv_blocks.max(whole(value));
        }
    }

    fn reading(&self) -> Reading {
        let process = self.process_start.and_then(millis).map(StartTime::Process);
        let usage = self.usage.iter().find(|series| series.count > 0);
        let load = Load {
            waiting: self.waiting.sum(),
            running: self.running.sum(),
            kv_usage: usage.and_then(Series::mean_share),
        };
        let Mapping { waiting, running, kv_usage, .. } = self.mapping;
        Reading {
            is_whole: (waiting.is_none() || load.waiting.is_some())
                && (running.is_none() || load.running.is_some())
                && (kv_usage.is_empty() || load.kv_usage.is_some()),
            load,
            signals: Signals {
                adapters: self.adapters.and_then(|(_, labels)| adapters(labels)),
                attributes: self.attributes(),
            },
            block_tokens: self.block_tokens.filter(|tokens| *tokens > 0),
            kv_blocks: self.kv_blocks.filter(|blocks| *blocks > 0),
            start: process.or_else(|| self.created.and_then(millis).map(StartTime::Created)),
        }
    }

    fn attributes(&self) -> Vec<(String, f64)> {
        let keys = self.mapping.attributes.iter().map(|(key, _)| key);
        let known =
            keys.zip(&self.attributes).filter_map(|(key, s)| Some((key.clone(), s.mean()?)));
        let mut attributes: Vec<_> = known.take(MAX_SIGNALS).collect();
        attributes.sort_by(|(a, _), (b, _)| a.cmp(b));
        attributes
    }
}

/// Adapters as the labels of vLLM's `lora_requests_info` tell them. Without their limit nobody could say whether
/// there is room for another: then nothing is known.
fn adapters(labels: &[u8]) -> Option<Adapters> {
    let max = exposition::label(labels, "max_lora")?.trim().parse().ok()?;
    let names = |key| {
        let mut names: Vec<String> = Vec::new();
        for name in exposition::label(labels, key).unwrap_or_default().split(',').map(str::trim) {
            let fine = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
            if fine && names.len() < MAX_SIGNALS && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    };
    Some(Adapters {
        active: names("running_lora_adapters"),
        waiting: names("waiting_lora_adapters"),
        max,
    })
}

/// Seconds since 1970 as milliseconds, if they can be a date (until the year 5138).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range is checked")]
fn millis(seconds: f64) -> Option<u64> {
    (seconds > 0.0 && seconds < 1e11).then(|| (seconds * 1000.0).round() as u64)
}

/// A number of things.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range is checked")]
fn whole(value: f64) -> Option<u32> {
    (value >= 0.0 && value < f64::from(u32::MAX)).then(|| value.round() as u32)
}

/// The series of one family, over ranks.
#[derive(Debug, Clone, Copy, Default)]
struct Series {
    count: u32,
    total: f64,
}

impl Series {
    fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.total += value;
    }

    /// One rank that is not a number makes the sum not a number, and so "not known".
    #[expect(clippy::cast_possible_truncation, reason = "a count of requests fits")]
    fn sum(&self) -> Option<f32> {
        (self.count > 0 && self.total >= 0.0 && self.total < 1e9).then_some(self.total as f32)
    }

    fn mean(&self) -> Option<f64> {
        let mean = self.total / f64::from(self.count);
        mean.is_finite().then_some(mean)
    }

    /// A value outside 0..1 is another unit than we think, not a full cache.
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1")]
    fn mean_share(&self) -> Option<f32> {
        let mean = self.mean()?;
        (-1e-6..=1.001).contains(&mean).then(|| mean.clamp(0.0, 1.0) as f32)
    }
}

#[cfg(test)]
mod tests;
