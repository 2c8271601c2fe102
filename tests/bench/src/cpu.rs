//! Which core does what, and what a process has used.

use std::collections::BTreeSet;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warmroute_demo::processes;

/// The two halves of the machine.
#[derive(Clone, Debug)]
pub struct Cores {
    proxies: CpuSet,
    others: CpuSet,
    all: CpuSet,
    split: bool,
}

impl Cores {
    /// The first core that this process may use is the proxies', the second is everybody else's. With one core nothing is
    /// split.
    #[must_use]
    pub fn find() -> Self {
        let all = sched_getaffinity(None).unwrap_or_default();
        let mut own = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let (first, second) = (own.next(), own.next());
        let only = |cpu: Option<usize>| {
            let mut set = CpuSet::new();
            cpu.into_iter().for_each(|cpu| set.set(cpu));
            set
        };
        let split = second.is_some();
        Self {
            proxies: if split { only(first) } else { all },
            others: if split { only(second) } else { all },
            all,
            split,
        }
    }

    /// Whether proxies have a core of their own.
    #[must_use]
    pub fn split(&self) -> bool {
        self.split
    }

    /// What this thread starts from now on runs on the proxies' core; so does the thread itself.
    pub fn start_proxies(&self) {
        set(&self.proxies);
    }

    /// This thread, and what it starts from now on, leaves the proxies' core alone.
    pub fn start_others(&self) {
        set(&self.others);
    }

    /// This thread, and what it starts from now on, may run anywhere.
    pub fn start_anywhere(&self) {
        set(&self.all);
    }
}

fn set(cores: &CpuSet) {
    // Where it is not allowed everything runs anywhere: the figures are less steady, not wrong.
    let _ = sched_setaffinity(None, cores);
}

/// Time on a core of these processes and their children, in microseconds. Threads that have ended do not count.
#[must_use]
pub fn used_us(pids: &[u32]) -> f64 {
    family(pids).into_iter().map(process_us).sum()
}

/// Time on a core of this process alone, in microseconds.
#[must_use]
pub fn own_us() -> f64 {
    process_us(std::process::id())
}

fn process_us(pid: u32) -> f64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.flatten().filter_map(|task| of(task.path())).sum::<f64>() / 1e3
}

/// Resident memory of these processes and their children, in MB.
#[must_use]
pub fn resident_mb(pids: &[u32]) -> f64 {
    family(pids).into_iter().filter_map(processes::resident_mb).sum()
}

/// These processes and all that descend from them.
fn family(pids: &[u32]) -> BTreeSet<u32> {
    let mut known: BTreeSet<u32> = pids.iter().copied().collect();
    let mut new: Vec<u32> = pids.to_vec();
    while let Some(pid) = new.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            new.extend(children.filter(|child| known.insert(*child)));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_of_this_process_and_its_children_are_seen() {
        let own = [std::process::id()];
        let before = used_us(&own);
        let mut sum = 0u64;
        while used_us(&own) < before + 2_000.0 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(resident_mb(&own) > 1.0);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(&own).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family(&own).contains(&child.id()));
    }
}
