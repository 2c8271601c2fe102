//! Times every case natively: median of many runs, in microseconds.
#![allow(clippy::print_stdout)]

use hot_paths::{Case, NAMES};
use std::time::{Duration, Instant};

/// How long each case is run.
const FOR: Duration = Duration::from_millis(500);

fn main() {
    println!("{:<18} {:>12}", "case", "native us");
    for name in NAMES {
        let Some(mut case) = Case::prepare(name) else { continue };
        let (mut times, since) = (Vec::new(), Instant::now());
        while since.elapsed() < FOR {
            let begun = Instant::now();
            std::hint::black_box(case.run());
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        println!("{name:<18} {:>12.2}", median.as_secs_f64() * 1e6);
    }
}
