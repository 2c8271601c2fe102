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
        precise: false,
        lower_tier_percent: 0,
        labels: Vec::new(),
        pools: Vec::new(),
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
    signals: BTreeMap<EndpointId, Arc<Signals>>,
    blocks: BTreeMap<(EndpointId, Tier, u64), u32>,
    models: BTreeMap<String, Arc<ModelRecord>>,
}

impl Mirror {
    fn apply(&mut self, page: &Page) {
        if let PageKind::Delta { from_seq } = page.kind {
            assert_eq!(from_seq, self.position.seq);
        }
        for op in &page.ops {
            match op {
                AgentOp::Endpoint(record) => {
                    let known = self.rows.get(&record.id);
                    let load = known.and_then(|(_, load)| *load);
                    if known.is_some_and(|(known, _)| known.generation != record.generation) {
                        self.blocks.retain(|(id, ..), _| *id != record.id);
                    }
                    self.rows.insert(record.id, (record.clone(), load));
                }
                AgentOp::Remove(id) => {
                    assert!(self.rows.remove(id).is_some());
                    self.signals.remove(id);
                    self.blocks.retain(|(of, ..), _| of != id);
                }
                AgentOp::Store { id, tier, blocks, .. } => {
                    assert!(self.rows.contains_key(id));
                    for block in blocks.iter() {
                        self.blocks.insert((*id, *tier, block.hash), block.tokens);
                    }
                }
                AgentOp::Evict { id, tier, hashes, .. } => {
                    hashes.iter().for_each(|hash| {
                        self.blocks.remove(&(*id, *tier, *hash));
                    });
                }
                AgentOp::Model(model) => {
                    self.models.insert(model.name.clone(), Arc::clone(model));
                }
                AgentOp::RemoveModel(name) => assert!(self.models.remove(name).is_some()),
                AgentOp::Signals { id, signals } => {
                    assert!(self.rows.contains_key(id));
                    self.signals.insert(*id, Arc::clone(signals));
                }
                AgentOp::Policy(_) => {}
                AgentOp::Load { id, load, .. } => {
                    self.rows.get_mut(id).expect("load of a known endpoint").1 = Some(*load);
                }
            }
        }
        self.position = page.position;
    }

    fn of(table: &Table) -> Self {
        let rows = table.rows().map(|(r, m)| (r.id, (r, m.map(|m| m.load)))).collect();
        let mut all = Self { position: table.position(), rows, ..Self::default() };
        all.models = table.models.clone();
        let told = table.rows.values().filter(|row| row.signals.0 > 0);
        all.signals = told.map(|row| (row.record.id, Arc::clone(&row.signals.1))).collect();
        for (id, held) in &table.held {
            for operation in held.operations(*id) {
                if let AgentOp::Store { id, tier, blocks, .. } = operation
                    && all.rows.contains_key(&id)
                {
                    all.blocks.extend(blocks.iter().map(|b| ((id, tier, b.hash), b.tokens)));
                }
            }
        }
        all
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

fn signals(value: f64) -> Arc<Signals> {
    Arc::new(Signals { adapters: None, attributes: vec![("depth".into(), value)] })
}

#[test]
fn only_the_newest_signals_are_told_and_they_fill_no_log() {
    let now = Instant::now();
    let mut table = Table::new(9);
    table.put(record(1));
    let from = table.position();
    for n in 0..10_000 {
        table.set_signals(EndpointId(1), &signals(n.into()));
    }
    table.put(record(2));
    table.set_signals(EndpointId(7), &signals(1.0));
    assert_eq!(table.log.len(), 2);
    let page = page(table.delta(from, now));
    let expected = [
        AgentOp::Signals { id: EndpointId(1), signals: signals(9_999.0) },
        AgentOp::Endpoint(record(2)),
    ];
    assert_eq!(page.ops, expected);
    let seq = table.position().seq;
    table.set_signals(EndpointId(1), &signals(9_999.0));
    assert_eq!(table.position().seq, seq, "nothing new");
    table.set_signals(EndpointId(1), &Arc::default());
    assert!(!table.changed_since(seq), "they may wait like a load");
    let told = Operation::Told(AgentOp::Signals { id: EndpointId(1), signals: Arc::default() });
    assert!(table.everything().contains(&told), "that there are none any more");
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
    for n in 0..=u32::try_from(LOG_CHANGES).unwrap() {
        table.put(EndpointRecord { kv_blocks: n, ..record(1) });
    }
    let at = |epoch, seq| table.delta(Position { epoch, seq }, now);
    assert_eq!(at(9, 0), Delta::OutOfReach, "one change was lost");
    assert!(matches!(at(9, 1), Delta::Page(_)));
    assert_eq!(at(8, 1), Delta::OutOfReach);
    assert_eq!(at(9, LOG_CHANGES as u64 + 2), Delta::OutOfReach);
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
        let attributes = (0..200).map(|key| (format!("{key:050}"), 1.0)).collect();
        table.set_signals(EndpointId(n.into()), &Arc::new(Signals { adapters: None, attributes }));
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
    for n in 0..600 {
        let mut large = record(n);
        large.labels = vec![("k".into(), "v".repeat(60_000))];
        table.put(large);
        assert!(table.log_bytes <= LOG_BYTES);
    }
    assert!(table.floor > 0);
}

#[test]
fn a_new_period_or_generation_voids_what_was_held() {
    let id = EndpointId(1);
    let blocks = [Block { hash: 7, tokens: 30 }];
    let mut table = Table::new(9);
    let early = table.begin(id, Following { precise: true, lower_tier_percent: 0 });
    table.store(id, early, Tier::Device, 0, &blocks);
    assert_eq!(table.held(id), (true, 1), "before it is announced");
    table.put(record(1));
    let told = |table: &Table| table.rows().next().map(|(r, _)| (r.generation, r.precise)).unwrap();
    let first = told(&table);
    assert!(first.1);
    assert_eq!(Mirror::of(&table).blocks.len(), 1);

    let late = table.begin(id, Following { precise: true, lower_tier_percent: 0 });
    assert_ne!(told(&table).0, first.0);
    assert_eq!(table.held(id), (true, 0));
    table.store(id, early, Tier::Device, 0, &blocks);
    assert_eq!(table.held(id), (true, 0), "of a period that is over");
    table.store(id, late, Tier::Device, 0, &blocks);
    assert_eq!(table.held(id), (true, 1));

    let resumed = Following { precise: true, lower_tier_percent: 80 };
    let again = table.resume(id, late, resumed);
    assert_eq!(table.held(id), (true, 1), "kept");
    assert_eq!(Mirror::of(&table).blocks.len(), 1);
    table.store(id, late, Tier::Device, 0, &[Block { hash: 8, tokens: 30 }]);
    assert_eq!(table.held(id), (true, 1), "of a period that is over");
    table.resume(id, early, resumed);
    assert_eq!(table.held(id), (true, 0), "what was held in another period is not resumed");
    table.store(id, again, Tier::Device, 0, &blocks);
    assert_eq!(table.held(id), (true, 0));

    table.end(id);
    assert_eq!(table.held(id), (false, 0));
    assert!(!told(&table).1);
    let late = table.begin(id, resumed);
    table.store(id, late, Tier::Device, 0, &blocks);

    table.put(EndpointRecord { generation: 2, ..record(1) });
    assert_eq!(table.held(id), (false, 0), "the engine restarted: its events are not followed yet");
    table.store(id, late, Tier::Device, 0, &blocks);
    assert_eq!(table.held(id), (false, 0));
    assert!(!told(&table).1);
}

proptest::proptest! {
    #[test]
    fn a_reader_at_any_pace_ends_with_the_same_table(
        steps in proptest::collection::vec((0u8..12, 0u16..5, 0u8..3), 0..160)
    ) {
        let start = Instant::now();
        let mut table = Table::new(9);
        let mut mirror = Mirror { position: table.position(), ..Mirror::default() };
        let mut periods: BTreeMap<u16, Vec<Period>> = BTreeMap::new();
        for (n, (what, who, value)) in (0u64..).zip(steps) {
            let now = start + Duration::from_millis(n);
            let id = EndpointId(who.into());
            let known = periods.entry(who).or_default();
            // Not always of the newest period: what is told late must change nothing.
            let period = known.iter().rev().nth((n % 3 / 2) as usize).copied();
            let tier = if value == 2 { Tier::Any } else { Tier::Device };
            match what {
                0 => table.put(EndpointRecord { generation: value.into(), ..record(who) }),
                1 => table.remove(EndpointId(who.into())),
                2 => table.set_load(EndpointId(who.into()), load(value.into(), now)),
                3 => known.push(table.begin(id, Following { precise: value > 0, lower_tier_percent: 80 })),
                4 | 5 => if let Some(period) = period {
                    let blocks: Vec<Block> = (0..n % 6)
                        .map(|k| Block { hash: k + u64::from(value), tokens: u32::from(who) + 1 })
                        .collect();
                    table.store(id, period, tier, n, &blocks);
                },
                6 => if let Some(period) = period {
                    table.evict(id, period, tier, n, &[n % 6, n % 5]);
                },
                7 => table.set_models(vec![ModelRecord {
                    name: format!("m{who}"),
                    stream: value.into(),
                    ..ModelRecord::default()
                }]),
                8 => if let Some(period) = period {
                    let following = Following { precise: true, lower_tier_percent: value };
                    known.push(table.resume(id, period, following));
                },
                9 => table.end(id),
                10 => table.set_signals(id, &signals(value.into())),
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
