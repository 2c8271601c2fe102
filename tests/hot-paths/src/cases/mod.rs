//! The cases.

mod exchange;
mod prompt;
mod response;
mod schedule;
mod table;

/// Names of all cases: what is done, and to how much of it.
pub const NAMES: &[&str] = &[
    "scan/0.5k",
    "scan/220k",
    "scan-russian/220k",
    "approximate/220k",
    "render/220k",
    "render-anew/220k",
    "walk/10k",
    "walk/1M",
    "walk-scattered/10k",
    "score/10",
    "score/256",
    "sse/200",
    "exchange/0.5k",
    "exchange/220k",
];

/// One part of the request path, prepared and ready to run again and again.
pub struct Case(Box<dyn FnMut() -> u64>);

impl Case {
    /// Prepares the case of this name, one of [`NAMES`].
    #[must_use]
    pub fn prepare(name: &str) -> Option<Self> {
        let work = match name {
            "scan/0.5k" => prompt::scan(500),
            "scan/220k" => prompt::scan(220 << 10),
            "scan-russian/220k" => prompt::scan_russian(220 << 10),
            "approximate/220k" => prompt::approximate(220 << 10),
            "render/220k" => prompt::render(220 << 10),
            "render-anew/220k" => prompt::render_anew(220 << 10),
            "walk/10k" => table::walk(10_000),
            "walk/1M" => table::walk(1_000_000),
            "walk-scattered/10k" => table::walk_scattered(10_000),
            "score/10" => schedule::score(10),
            "score/256" => schedule::score(256),
            "sse/200" => response::sse(200),
            "exchange/0.5k" => exchange::whole(500, 1),
            "exchange/220k" => exchange::whole(220 << 10, 1),
            _ => return None,
        };
        Some(Self(work))
    }

    /// Runs it once. What it returns depends on all of its work, so that none can be left out.
    pub fn run(&mut self) -> u64 {
        (self.0)()
    }
}

/// How much of a body Envoy hands over at once, about.
const SLICE: usize = 16 << 10;

/// A case's work.
type Work = Box<dyn FnMut() -> u64>;
