use super::*;
use std::time::Duration;
use warmroute_shared_state::endpoint::{Availability, Load};

fn record(n: u16) -> EndpointRecord {
    let address = format!("10.0.0.1:{n}");
    EndpointRecord {
        id: EndpointId(n.into()),
        generation: 1,
        name: format!("default/r{n}"),
        address,
        availability: Availability::Ready,
        block_tokens: 16,
        kv_blocks: 100,
        labels: Vec::new(),
    }
}

fn load(waiting: f32, at: Instant) -> Measured {
    Measured { load: Load { waiting: Some(waiting), ..Load::default() }, at }
}

/// A reader as the filter is one: applies pages to a table of its own.
#[derive(Debug, Default, PartialEq)]
struct Mirror {
    position: Position,
    rows: BTreeMap<EndpointId, (EndpointRecord, Option<Load>)>,
}

impl Mirror {
    fn apply(&mut self, page: &Page) {
        if let PageKind::Delta { from_seq } = page.kind {
            assert_eq!(from_seq, self.position.seq);
        }
        for op in &page.ops {
            match op {
                AgentOp::Endpoint(record) => {
                    let load = self.rows.get(&record.id).and_then(|(_, load)| *load);
                    self.rows.insert(record.id, (record.clone(), load));
                }
                AgentOp::Remove(id) => assert!(self.rows.remove(id).is_some()),
                AgentOp::Load { id, load, .. } => {
                    self.rows.get_mut(id).expect("load of a known endpoint").1 = Some(*load);
                }
            }
        }
        self.position = page.position;
    }

    fn of(table: &Table) -> Self {
        let rows = table.rows().map(|(r, m)| (r.id, (r.clone(), m.map(|m| m.load)))).collect();
        Self { position: table.position(), rows }
    }
}

fn page(delta: Delta) -> Page {
    match delta {
        Delta::Page(page) => page,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delta_holds_changes_in_order_and_only_the_newest_load_of_each() {
    let start = Instant::now();
    let mut table = Table::new(9);
    table.put(record(1));
    table.set_load(EndpointId(1), load(1.0, start));
    let from = table.position();
    table.put(record(2));
    for n in 2..50u8 {
        table.set_load(EndpointId(1), load(n.into(), start + Duration::from_millis(n.into())));
    }
    table.remove(EndpointId(2));
    table.put(record(2));
    let page = page(table.delta(from, start + Duration::from_millis(149)));
    assert_eq!(page.position, table.position());
    assert_eq!(page.kind, PageKind::Delta { from_seq: from.seq });
    let newest = load(49.0, start).load;
    let expected = [
        AgentOp::Endpoint(record(2)),
        AgentOp::Remove(EndpointId(2)),
        AgentOp::Endpoint(record(2)),
        AgentOp::Load { id: EndpointId(1), age_ms: 100, load: newest },
    ];
    assert_eq!(page.ops, expected);
    assert_eq!(table.delta(table.position(), start), Delta::Nothing);
}

#[test]
fn what_is_not_new_is_not_told() {
    let at = Instant::now();
    let mut table = Table::new(9);
    table.put(record(1));
    table.set_load(EndpointId(1), load(1.0, at));
    let position = table.position();
    table.put(record(1));
    table.set_load(EndpointId(1), load(1.0, at));
    table.set_load(EndpointId(7), load(1.0, at));
    table.remove(EndpointId(7));
    assert_eq!(table.position(), position);
    table.set_load(EndpointId(1), load(1.0, at + Duration::from_millis(50)));
    assert_ne!(table.position(), position, "an equal load of a later scrape is news: it is fresh");
}

#[test]
fn changes_are_told_apart_from_loads() {
    let at = Instant::now();
    let mut table = Table::new(9);
    table.put(record(1));
    let seq = table.position().seq;
    table.set_load(EndpointId(1), load(1.0, at));
    assert!(!table.changed_since(seq));
    table.remove(EndpointId(1));
    assert!(table.changed_since(seq));
}

#[test]
fn positions_that_are_not_in_the_log_are_out_of_reach() {
    let now = Instant::now();
    let mut table = Table::new(9);
    for n in 0..=u16::try_from(LOG_CHANGES).unwrap() {
        table.put(record(n));
    }
    let at = |epoch, seq| table.delta(Position { epoch, seq }, now);
    assert_eq!(at(9, 0), Delta::OutOfReach, "one change was lost");
    assert!(matches!(at(9, 1), Delta::Page(_)));
    assert_eq!(at(8, 1), Delta::OutOfReach);
    assert_eq!(at(9, 5000), Delta::OutOfReach);
}

#[test]
fn a_large_delta_is_cut_into_pages_that_end_where_a_snapshot_would() {
    let now = Instant::now();
    let mut table = Table::new(9);
    let mut mirror = Mirror { position: table.position(), ..Mirror::default() };
    for n in 0..64 {
        let mut large = record(n);
        large.labels = vec![("k".into(), "v".repeat(60_000))];
        table.put(large);
        table.set_load(EndpointId(n.into()), load(n.into(), now));
    }
    let mut pages = 0;
    while let Delta::Page(page) = table.delta(mirror.position, now) {
        assert!(page.encode().len() <= PAGE_BYTES + 70_000);
        mirror.apply(&page);
        pages += 1;
    }
    assert!(pages > 3, "{pages}");
    assert_eq!(mirror, Mirror::of(&table));
}

#[test]
fn the_log_is_bounded_in_bytes() {
    let mut table = Table::new(9);
    for n in 0..400 {
        let mut large = record(n);
        large.labels = vec![("k".into(), "v".repeat(60_000))];
        table.put(large);
        assert!(table.log_bytes <= LOG_BYTES);
    }
    assert!(table.floor > 0);
}

proptest::proptest! {
    #[test]
    fn a_reader_at_any_pace_ends_with_the_same_table(
        steps in proptest::collection::vec((0u8..4, 0u16..5, 0u8..3), 0..120)
    ) {
        let start = Instant::now();
        let mut table = Table::new(9);
        let mut mirror = Mirror { position: table.position(), ..Mirror::default() };
        for (n, (what, who, value)) in (0u64..).zip(steps) {
            let now = start + Duration::from_millis(n);
            match what {
                0 => table.put(EndpointRecord { generation: value.into(), ..record(who) }),
                1 => table.remove(EndpointId(who.into())),
                2 => table.set_load(EndpointId(who.into()), load(value.into(), now)),
                _ => {
                    if let Delta::Page(page) = table.delta(mirror.position, now) {
                        mirror.apply(&Page::decode(&page.encode()).unwrap());
                    }
                }
            }
        }
        if let Delta::Page(page) = table.delta(mirror.position, start) {
            mirror.apply(&page);
        }
        assert_eq!(mirror, Mirror::of(&table));
    }
}
