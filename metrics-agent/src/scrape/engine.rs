//! Which metrics of an engine say what, and how they become signals.
//!
//! Several series of one family on one port are the ranks of one endpoint (data parallel).
//! Queues are **summed**: a request sent here waits behind all of them as far as we can tell.
//! KV usage is **averaged**: the engine itself balances over its ranks, so one full rank does not
//! make the endpoint full, and the mean is the used share of all its blocks. (llm-d reads the
//! first series only.) Blocks are **not** summed: vLLM already states the total of all ranks in
//! each rank's series (two ranks of 160 blocks say 320 twice).

use super::exposition::{self, Sample};
use warmroute_shared_state::endpoint::Load;

/// Names of the families that are read from one engine's exposition.
#[derive(Debug, Clone, Copy)]
pub struct EngineNames {
    /// Requests that wait.
    pub waiting: &'static str,
    /// Requests that run.
    pub running: &'static str,
    /// Share of KV blocks in use; the first name that is there counts.
    pub kv_usage: &'static [&'static str],
    /// Family whose labels describe the KV cache.
    pub cache_config: &'static str,
    /// Its label for the tokens of a block.
    pub block_tokens_label: &'static str,
    /// Its label for the number of blocks.
    pub kv_blocks_label: &'static str,
    /// Prefix of the engine's own families; the oldest `_created` series among them stands in
    /// for a missing process start time.
    pub own_prefix: &'static str,
}

/// vLLM. `gpu_cache_usage_perc` is the name before version 0.10.
pub const VLLM: EngineNames = EngineNames {
    waiting: "vllm:num_requests_waiting",
    running: "vllm:num_requests_running",
    kv_usage: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
    cache_config: "vllm:cache_config_info",
    block_tokens_label: "block_size",
    kv_blocks_label: "num_gpu_blocks",
    own_prefix: "vllm:",
};

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
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// The signals. What is missing, renamed or not a number is `None`.
    pub load: Load,
    /// Tokens in a KV block.
    pub block_tokens: Option<u32>,
    /// KV blocks of all ranks.
    pub kv_blocks: Option<u32>,
    /// When the engine started.
    pub start: Option<StartTime>,
}

/// Reads an exposition. `None` if there is nothing of this engine in it (blank, cut, not its page).
#[must_use]
pub fn read(text: &[u8], names: &EngineNames) -> Option<Reading> {
    let mut found = Found::default();
    let own = names.own_prefix.as_bytes();
    let wanted = |name: &[u8]| name.starts_with(own) || name == PROCESS_START;
    for sample in exposition::samples(text, wanted) {
        found.add(&sample, names);
    }
    found.any.then(|| found.reading())
}

#[derive(Default)]
struct Found {
    any: bool,
    waiting: Series,
    running: Series,
    /// The usage family that was seen, by its place in the list of names.
    usage: Option<(usize, Series)>,
    block_tokens: Option<u32>,
    kv_blocks: Option<u32>,
    process_start: Option<f64>,
    created: Option<f64>,
}

impl Found {
    fn add(&mut self, sample: &Sample<'_>, names: &EngineNames) {
        let Sample { name, labels, value } = *sample;
        let is = |wanted: &str| name == wanted.as_bytes();
        if is(names.waiting) {
            self.waiting.add(value);
        } else if is(names.running) {
            self.running.add(value);
        } else if let Some(rank) = names.kv_usage.iter().position(|wanted| is(wanted)) {
            match &mut self.usage {
                Some((seen, series)) if *seen == rank => series.add(value),
                Some((seen, _)) if *seen < rank => {}
                usage => *usage = Some((rank, Series::of(value))),
            }
        } else if is(names.cache_config) {
            let number =
                |key| exposition::label(labels, key).and_then(|text| text.parse::<u32>().ok());
            self.block_tokens = self.block_tokens.or(number(names.block_tokens_label));
            self.kv_blocks = self.kv_blocks.max(number(names.kv_blocks_label));
        } else if name == PROCESS_START {
            self.process_start = Some(value);
        } else if name.ends_with(b"_created") {
            self.created = Some(self.created.map_or(value, |oldest| oldest.min(value)));
        } else {
            return;
        }
        self.any = true;
    }

    fn reading(&self) -> Reading {
        let process = self.process_start.and_then(millis).map(StartTime::Process);
        Reading {
            load: Load {
                waiting: self.waiting.sum(),
                running: self.running.sum(),
                kv_usage: self.usage.as_ref().and_then(|(_, series)| series.mean_share()),
            },
            block_tokens: self.block_tokens,
            kv_blocks: self.kv_blocks,
            start: process.or_else(|| self.created.and_then(millis).map(StartTime::Created)),
        }
    }
}

/// Seconds since 1970 as milliseconds, if they can be a date (until the year 5138).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range is checked")]
fn millis(seconds: f64) -> Option<u64> {
    (seconds > 0.0 && seconds < 1e11).then(|| (seconds * 1000.0).round() as u64)
}

/// The series of one family, over ranks.
#[derive(Default)]
struct Series {
    count: u32,
    total: f64,
}

impl Series {
    fn of(value: f64) -> Self {
        Self { count: 1, total: value }
    }

    fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.total += value;
    }

    /// One rank that is not a number makes the sum not a number, and so "not known".
    #[expect(clippy::cast_possible_truncation, reason = "a count of requests fits")]
    fn sum(&self) -> Option<f32> {
        (self.count > 0 && self.total >= 0.0 && self.total < 1e9).then_some(self.total as f32)
    }

    /// A value outside 0..1 is another unit than we think, not a full cache.
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1")]
    fn mean_share(&self) -> Option<f32> {
        let mean = self.total / f64::from(self.count);
        (-1e-6..=1.001).contains(&mean).then(|| mean.clamp(0.0, 1.0) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &str = include_str!("../../tests/fixtures/vllm_idle.txt");
    const UNDER_LOAD: &str = include_str!("../../tests/fixtures/vllm_under_load.txt");
    const TWO_RANKS: &str = include_str!("../../tests/fixtures/vllm_two_ranks.txt");

    fn vllm(text: &str) -> Option<Reading> {
        read(text.as_bytes(), &VLLM)
    }

    fn load(text: &str) -> [Option<f32>; 3] {
        let load = vllm(text).unwrap().load;
        [load.waiting, load.running, load.kv_usage]
    }

    #[test]
    fn captured_expositions_are_read() {
        let start = Some(StartTime::Process(1_795_993_458_220));
        let capacity = |reading: &Reading| (reading.block_tokens, reading.kv_blocks);
        let idle = vllm(IDLE).unwrap();
        assert_eq!(load(IDLE), [Some(0.0), Some(0.0), Some(0.0)]);
        assert_eq!((capacity(&idle), idle.start), ((Some(32), Some(160)), start));
        let busy = vllm(UNDER_LOAD).unwrap();
        assert_eq!(load(UNDER_LOAD), [Some(8.0), Some(4.0), Some(0.477_987_4)]);
        assert_eq!((capacity(&busy), busy.start), ((Some(32), Some(160)), start));
        let ranks = vllm(TWO_RANKS).unwrap();
        assert_eq!(load(TWO_RANKS), [Some(2.0), Some(4.0), Some(0.125_786_17)]);
        assert_eq!((capacity(&ranks), ranks.start), ((Some(32), Some(320)), None));
    }

    #[test]
    fn both_names_of_kv_usage_are_known_and_the_new_one_wins() {
        let old = "vllm:gpu_cache_usage_perc 0.25\n";
        let new = "vllm:kv_cache_usage_perc 0.75\n";
        assert_eq!(load(old)[2], Some(0.25));
        assert_eq!(load(new)[2], Some(0.75));
        assert_eq!(load(&format!("{old}{new}"))[2], Some(0.75));
        assert_eq!(load(&format!("{new}{old}"))[2], Some(0.75));
        assert_eq!(load("vllm:num_requests_waiting 1\n")[2], None);
    }

    #[test]
    fn a_signal_that_is_no_number_is_unknown_and_the_others_stay() {
        for bad in ["NaN", "+Inf", "-Inf", "-1", "1e30", "x", ""] {
            let text = format!("vllm:num_requests_waiting {bad}\nvllm:num_requests_running 2\n");
            assert_eq!(load(&text), [None, Some(2.0), None], "{bad}");
        }
        for bad in ["NaN", "+Inf", "45", "-0.5"] {
            let text = format!("vllm:kv_cache_usage_perc {bad}\nvllm:num_requests_running 2\n");
            assert_eq!(load(&text), [None, Some(2.0), None], "{bad}");
        }
        let one_rank = "vllm:num_requests_waiting{engine=\"0\"} 1\n\
                        vllm:num_requests_waiting{engine=\"1\"} NaN\n";
        assert_eq!(load(one_rank)[0], None);
    }

    #[test]
    fn nothing_of_the_engine_is_no_reading() {
        for text in ["", "\n", "# HELP x\n", "<html>500</html>\n", "up 1\n", "vllm:other 1\n"] {
            assert_eq!(vllm(text), None, "{text}");
        }
        // What gzip makes of a page: we never ask for it.
        assert_eq!(read(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03+\xcb\xc9\n", &VLLM), None);
        let cut = &UNDER_LOAD[..40];
        assert_eq!(vllm(cut), None);
    }

    #[test]
    fn cache_info_without_numbers_is_unknown() {
        let text = "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"None\"} 1.0\n";
        let reading = vllm(text).unwrap();
        assert_eq!((reading.block_tokens, reading.kv_blocks), (None, None));
    }

    #[test]
    fn a_restart_is_a_start_time_of_the_same_origin_going_forward() {
        use StartTime::{Created, Process};
        let created = "vllm:a_created 20\nvllm:b_created 10.5\nother_created 1\n";
        assert_eq!(vllm(created).unwrap().start, Some(Created(10_500)));
        let both = format!("{created}process_start_time_seconds 5\n");
        assert_eq!(vllm(&both).unwrap().start, Some(Process(5_000)));
        let cases = [
            (Process(1), Process(2), true),
            (Process(2), Process(2), false),
            (Process(2), Process(1), false),
            (Created(1), Created(2), true),
            (Process(1), Created(2), false),
        ];
        for (earlier, now, restarted) in cases {
            assert_eq!(now.is_restart_since(earlier), restarted, "{earlier:?} {now:?}");
        }
        for bad in ["NaN", "-1", "1e300", "0"] {
            let text = format!("process_start_time_seconds {bad}\n");
            assert_eq!(vllm(&text).unwrap().start, None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_body_cut_anywhere_says_nothing_false(cut in 0usize..70_000) {
            let whole = vllm(UNDER_LOAD).unwrap();
            let bytes = UNDER_LOAD.as_bytes();
            if let Some(part) = read(&bytes[..cut.min(bytes.len())], &VLLM) {
                let same = |a: Option<f32>, b: Option<f32>| a.is_none() || a == b;
                assert!(same(part.load.waiting, whole.load.waiting));
                assert!(same(part.load.running, whole.load.running));
                assert!(same(part.load.kv_usage, whole.load.kv_usage));
            }
        }
    }
}
