//! What the wasm build exports: plain numbers only, so that any host can call it.
#![allow(unreachable_pub)]

use crate::{Case, NAMES};
use core::cell::RefCell;

thread_local! {
    static PREPARED: RefCell<Option<Case>> = const { RefCell::new(None) };
}

/// Prepares case number `index` of [`NAMES`]; whether there is one.
#[unsafe(no_mangle)]
pub extern "C" fn prepare(index: u32) -> u32 {
    let case = NAMES.get(index as usize).and_then(|name| Case::prepare(name));
    let there = case.is_some();
    PREPARED.with_borrow_mut(|prepared| *prepared = case);
    there.into()
}

/// Runs the prepared case so many times.
#[unsafe(no_mangle)]
pub extern "C" fn run(times: u32) -> u64 {
    PREPARED.with_borrow_mut(|prepared| {
        let Some(case) = prepared else { return 0 };
        (0..times).fold(0, |sum, _| sum ^ core::hint::black_box(case.run()))
    })
}

/// Where case number `index`'s name is: its address above, its length below 32 bits. 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn name(index: u32) -> u64 {
    let at = NAMES.get(index as usize);
    at.map_or(0, |name| ((name.as_ptr() as usize as u64) << 32) | name.len() as u64)
}
