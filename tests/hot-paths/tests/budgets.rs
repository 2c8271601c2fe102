//! Fuel that each case may take: what an interpreter counts for the instructions that it runs, the same on every
//! machine, under any load.
//!
//! `count.sh test` builds the module and runs this.
#![cfg(feature = "budgets")]

use hot_paths::NAMES;
use wasmi::{Config, Engine, Linker, Module, Store};

/// A case's fuel for one run, and a quarter more: compilers differ a little. To change one, say in the commit why.
const BUDGETS: &[(&str, u64)] = &[
    ("scan/0.5k", 140_000),
    ("scan/220k", 5_500_000),
    ("scan-russian/220k", 38_200_000),
    ("approximate/220k", 775_000),
    ("render/220k", 1_270_000),
    ("render-anew/220k", 12_700_000),
    ("walk/10k", 150_000),
    ("walk-scattered/10k", 2_450_000),
    ("score/10", 36_000),
    ("score/256", 290_000),
    ("sse/200", 9_300_000),
    ("exchange/0.5k", 860_000),
    ("exchange/220k", 7_050_000),
];

/// Preparing a case may take as much as it likes.
const PLENTY: u64 = u64::MAX / 2;

/// Runs before the counted one: buffers have grown by then.
const WARM_UP: u32 = 3;

#[test]
fn no_case_takes_more_fuel_than_it_may() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::var("HOT_PATHS_WASM")?;
    let mut config = Config::default();
    config.consume_fuel(true);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, &std::fs::read(file)?[..])?;
    let mut wrong = Vec::new();
    for (index, case) in (0_u32..).zip(NAMES) {
        let Some((_, budget)) = BUDGETS.iter().find(|(name, _)| name == case) else {
            // Too much to prepare in an interpreter.
            assert_eq!(*case, "walk/1M", "a case without a budget");
            continue;
        };
        let mut store = Store::new(&engine, ());
        store.set_fuel(PLENTY)?;
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module)?;
        let prepare = instance.get_typed_func::<u32, u32>(&store, "prepare")?;
        let run = instance.get_typed_func::<u32, u64>(&store, "run")?;
        assert_eq!(prepare.call(&mut store, index)?, 1, "{case}");
        run.call(&mut store, WARM_UP)?;
        let before = store.get_fuel()?;
        run.call(&mut store, 1)?;
        let taken = before - store.get_fuel()?;
        println!("{case:<18} {taken:>12} of {budget:>12}");
        if taken > *budget {
            wrong.push(format!("{case}: {taken} units of fuel, its budget is {budget}"));
        } else if taken < budget / 2 {
            wrong.push(format!(
                "{case}: {taken} units of fuel, less than half of its budget {budget}: lower it"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
