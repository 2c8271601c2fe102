//! Snapshots of the table, cut into pages and kept for readers that fetch them one by one.

use super::table::{Operation, Table};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use warmroute_shared_state::stream::{PAGE_BYTES, Page, PageKind, Position};

/// Snapshots that are kept for slow readers; the oldest goes first.
pub const KEPT: usize = 4;
/// Age up to which a kept snapshot begins another reader's table, too: what came since is a delta.
/// Were there a new one for each reader, many that start together would drop each other's
/// snapshots before any had all pages. A reader has `KEPT` times this for them.
pub const SHARED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Snapshot {
    position: Position,
    taken: Instant,
    /// At least one page, which may be empty.
    pages: Vec<Vec<Operation>>,
}

/// The kept snapshots, oldest first.
#[derive(Debug, Default)]
pub struct Snapshots {
    kept: VecDeque<Snapshot>,
}

impl Snapshots {
    /// Page 0 of a snapshot of the table as it is or, if it has several pages, was a moment ago.
    pub fn first_page(&mut self, table: &Table, now: Instant) -> Page {
        if let Some(newest) = self.kept.back()
            && now.saturating_duration_since(newest.taken) < SHARED_FOR
            && table.reaches(newest.position)
            && let Some(page) = newest.page(0, now)
        {
            return page;
        }
        let position = table.position();
        let pages = cut(table.everything());
        // One page is whole: nobody comes back for more of it.
        let whole = pages.len() == 1;
        let snapshot = Snapshot { position, taken: now, pages };
        let page = snapshot.page(0, now).unwrap_or(Page {
            position,
            kind: PageKind::Snapshot { page: 0, pages: 1 },
            ops: Vec::new(),
        });
        if !whole {
            if self.kept.len() >= KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(snapshot);
        }
        page
    }

    /// Gives up what every reader had its time for: a snapshot is as large as the table.
    pub fn forget_old(&mut self, now: Instant) {
        let time = SHARED_FOR.saturating_mul(u32::try_from(KEPT).unwrap_or(1));
        self.kept.retain(|kept| now.saturating_duration_since(kept.taken) < time);
    }

    /// A page of a kept snapshot, with ages as of `now`; `None` if it is gone or has no such page.
    #[must_use]
    pub fn page(&self, position: Position, page: u32, now: Instant) -> Option<Page> {
        self.kept.iter().find(|kept| kept.position == position)?.page(page, now)
    }
}

impl Snapshot {
    fn page(&self, page: u32, now: Instant) -> Option<Page> {
        let ops = self.pages.get(usize::try_from(page).ok()?)?;
        let pages = u32::try_from(self.pages.len()).ok()?;
        Some(Page {
            position: self.position,
            kind: PageKind::Snapshot { page, pages },
            ops: ops.iter().map(|operation| operation.at(now)).collect(),
        })
    }
}

fn cut(operations: Vec<Operation>) -> Vec<Vec<Operation>> {
    let now = Instant::now();
    let mut pages = Vec::new();
    let mut page = Vec::new();
    let mut bytes = 0usize;
    for operation in operations {
        let size = operation.at(now).size_hint();
        if bytes.saturating_add(size) > PAGE_BYTES && !page.is_empty() {
            pages.push(std::mem::take(&mut page));
            bytes = 0;
        }
        bytes = bytes.saturating_add(size);
        page.push(operation);
    }
    pages.push(page);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::table::{Delta, LOG_CHANGES};
    use crate::scrape::health::Measured;
    use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord, Load};
    use warmroute_shared_state::stream::AgentOp;

    fn put(table: &mut Table, n: u64, label_bytes: usize) {
        table.put(EndpointRecord {
            id: EndpointId(n),
            generation: 0,
            name: "default/r".into(),
            address: "10.0.0.1:80".into(),
            availability: Availability::Ready,
            block_tokens: 0,
            kv_blocks: 0,
            precise: false,
            lower_tier_percent: 0,
            labels: vec![("k".into(), "v".repeat(label_bytes))],
            pools: Vec::new(),
        });
    }

    fn large(epoch: u64, endpoints: u64) -> Table {
        let mut table = Table::new(epoch);
        for n in 0..endpoints {
            put(&mut table, n, 50_000);
        }
        table
    }

    #[test]
    fn an_empty_table_is_one_empty_page() {
        let page = Snapshots::default().first_page(&Table::new(3), Instant::now());
        assert_eq!(page.kind, PageKind::Snapshot { page: 0, pages: 1 });
        assert_eq!((page.position, page.ops.len()), (Position { epoch: 3, seq: 0 }, 0));
    }

    #[test]
    fn pages_together_are_the_table_as_of_their_position() {
        let now = Instant::now();
        let mut table = large(3, 50);
        let mut snapshots = Snapshots::default();
        let first = snapshots.first_page(&table, now);
        let PageKind::Snapshot { pages, .. } = first.kind else { panic!("{:?}", first.kind) };
        assert!(pages >= 3, "{pages}");
        put(&mut table, 99, 1);
        let mut seen = Vec::new();
        for n in 0..pages {
            let page = snapshots.page(first.position, n, now).unwrap();
            assert_eq!(page.position, first.position);
            assert!(page.encode().len() <= PAGE_BYTES + 100);
            seen.extend(page.ops.iter().filter_map(|op| match op {
                AgentOp::Endpoint(record) => Some(record.id.0),
                AgentOp::Signals { .. } => None,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        assert_eq!(snapshots.page(first.position, pages, now), None);
    }

    #[test]
    fn only_the_newest_snapshots_are_kept() {
        let now = Instant::now();
        let mut table = large(3, 50);
        let mut snapshots = Snapshots::default();
        let positions: Vec<_> = (0u8..6)
            .map(|n| {
                put(&mut table, 100 + u64::from(n), 1);
                snapshots.first_page(&table, now + SHARED_FOR * n.into()).position
            })
            .collect();
        let kept = positions.iter().filter(|p| snapshots.page(**p, 1, now).is_some()).count();
        assert_eq!(kept, KEPT);
        assert!(snapshots.page(positions[5], 1, now).is_some());
        assert!(snapshots.page(positions[0], 1, now).is_none());
    }

    #[test]
    fn readers_that_start_together_share_a_snapshot_while_the_log_reaches_it() {
        let now = Instant::now();
        let mut table = large(3, 50);
        let mut snapshots = Snapshots::default();
        let first = snapshots.first_page(&table, now).position;
        for n in 0..20 {
            put(&mut table, 100 + n, 1);
            assert_eq!(snapshots.first_page(&table, now).position, first, "reader {n}");
        }
        assert!(matches!(table.delta(first, now), Delta::Page(_)), "they can go on from there");
        assert_eq!(snapshots.first_page(&table, now + SHARED_FOR).position, table.position());

        let shared = table.position();
        for n in 0..=LOG_CHANGES as u64 {
            put(&mut table, 1000 + n % 2, usize::try_from(n % 3).unwrap());
        }
        assert_eq!(table.delta(shared, now), Delta::OutOfReach);
        assert_eq!(snapshots.first_page(&table, now + SHARED_FOR).position, table.position());
    }

    #[test]
    fn ages_are_those_of_the_moment_a_page_is_written() {
        let start = Instant::now();
        let mut table = large(3, 50);
        let load = Load { waiting: Some(1.0), ..Load::default() };
        table.set_load(EndpointId(0), Measured { load, at: start });
        let mut snapshots = Snapshots::default();
        let age = |page: &Page| match page.ops[1] {
            AgentOp::Load { age_ms, .. } => age_ms,
            ref other => panic!("{other:?}"),
        };
        let first = snapshots.first_page(&table, start + Duration::from_millis(10));
        assert_eq!(age(&first), 10);
        let again = snapshots.page(first.position, 0, start + Duration::from_millis(70)).unwrap();
        assert_eq!(age(&again), 70);
    }
}
