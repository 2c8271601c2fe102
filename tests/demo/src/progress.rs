//! A progress bar on standard error: one line that is redrawn on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const REDRAW: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

/// How far a number of steps has come.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: usize,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: usize,
    failed: usize,
    start: Instant,
    drawn: Option<Instant>,
    /// Tenths that have been written to something that is no terminal.
    tenths: usize,
}

impl Progress {
    /// A bar for `total` steps.
    #[must_use]
    pub fn new(label: &str, total: usize) -> Self {
        let start = Instant::now();
        let state = State { done: 0, failed: 0, start, drawn: None, tenths: 0 };
        let terminal = std::io::stderr().is_terminal();
        Self { label: label.to_owned(), total, terminal, state: Mutex::new(state) }
    }

    /// One more step is done; `failed` counts it as one that failed.
    pub fn step(&self, failed: bool) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.done += 1;
        state.failed += usize::from(failed);
        let finished = state.done >= self.total;
        let elapsed = state.start.elapsed();
        let text = line(&self.label, state.done, self.total, state.failed, elapsed);
        if self.terminal {
            if finished || state.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
                state.drawn = Some(Instant::now());
                write(&format!("\r{text}\x1b[K{}", if finished { "\n" } else { "" }));
            }
        } else {
            let tenths = state.done * 10 / self.total.max(1);
            // Every half is enough for a log.
            if tenths / 5 > state.tenths / 5 {
                write(&format!("{text}\n"));
            }
            state.tenths = tenths;
        }
    }
}

fn write(text: &str) {
    // A closed standard error is no reason to stop measuring.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(label: &str, done: usize, total: usize, failed: usize, elapsed: Duration) -> String {
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
    let bar: String = "#".repeat(filled) + &".".repeat(WIDTH - filled);
    let errors = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!("{label:<28} [{bar}] {done}/{total} {:.0} s{errors}", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_from_left_to_right() {
        let at = |done, total| line("x", done, total, 0, Duration::from_secs(3));
        assert!(at(0, 10).contains(&format!("[{}] 0/10 3 s", ".".repeat(30))));
        assert!(at(5, 10).contains(&format!("[{}{}]", "#".repeat(15), ".".repeat(15))));
        assert!(at(10, 10).contains(&format!("[{}]", "#".repeat(30))));
        assert!(at(12, 10).contains(&format!("[{}]", "#".repeat(30))));
        assert!(at(0, 0).contains("0/0"));
        assert!(line("x", 1, 2, 1, Duration::ZERO).ends_with("1 failed"));
    }
}
