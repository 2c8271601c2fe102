//! Host calls, none of which panics.
//!
//! The SDK panics on a status that it does not expect, and a panic costs every stream of the worker. What
//! can meet such a status is called directly here; the rest goes through the SDK.

use core::cell::Cell;
use core::ptr::null_mut;
use core::time::Duration;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use std::time::UNIX_EPOCH;
use warmroute_core::vm::{Cas, CasMismatch, SharedStore};

pub(crate) use proxy_wasm::hostcalls::set_tick_period;

const OK: u32 = 0;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_property(
        path: *const u8,
        path_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_set_property(
        path: *const u8,
        path_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_set_effective_context(context_id: u32) -> u32;
    fn proxy_get_header_map_pairs(
        map_type: u32,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_value(
        map_type: u32,
        key: *const u8,
        key_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map_type: u32,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_add_header_map_value(
        map_type: u32,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(map_type: u32, key: *const u8, key_size: usize) -> u32;
    fn proxy_get_buffer_bytes(
        buffer_type: u32,
        start: usize,
        max_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(
        buffer_type: u32,
        start: usize,
        size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
}

/// Takes over what the host allocated with the module's own allocator.
fn take(value: *mut u8, size: usize) -> Vec<u8> {
    if value.is_null() {
        return Vec::new();
    }
    // SAFETY: the host got this memory from `proxy_on_memory_allocate`, which the SDK answers with a
    // `Vec<u8>` of exactly this capacity, and gave it to us.
    unsafe { Vec::from_raw_parts(value, size, size) }
}

thread_local! {
    static RECENT_NS: Cell<u64> = const { Cell::new(0) };
}

/// Envoy's clock, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = hostcalls::get_current_time().ok();
    let since = now.and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    let now_ns = since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0);
    RECENT_NS.set(now_ns);
    now_ns
}

/// What the clock said last, to any callback of this VM, in milliseconds: it is that many ago if the VM has something to do,
/// since it ticks.
pub(crate) fn recent_ms() -> u64 {
    RECENT_NS.get() / 1_000_000
}

/// The same in milliseconds.
pub(crate) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// A property, by its path.
pub(crate) fn property(path: &[&str]) -> Option<Vec<u8>> {
    let path = path.join("\0");
    let (mut value, mut size) = (null_mut(), 0);
    // SAFETY: the host reads `path` and writes the two results.
    let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &mut value, &mut size) };
    (status == OK).then(|| take(value, size))
}

/// Publishes a value as filter state `wasm.<path>`.
pub(crate) fn set_property(path: &str, value: &[u8]) {
    // SAFETY: the host only reads both.
    unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) };
}

/// Answers the request here. `false`: it can't be answered any more.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: &[u8], details: &str) -> bool {
    let headers = serialize(headers);
    // SAFETY: the host only reads all of them.
    let answer = unsafe {
        proxy_send_local_response(
            status.into(),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    };
    answer == OK
}

/// Header pairs in the ABI's form: count, sizes, then zero-terminated strings.
fn serialize(pairs: &[(&str, &str)]) -> Vec<u8> {
    let size = |text: &str| u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
    let mut bytes = u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend(size(name));
        bytes.extend(size(value));
    }
    for (name, value) in pairs {
        for text in [name, value] {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// Lets the next calls act on another context. `false`: it is gone.
pub(crate) fn act_on(context_id: u32) -> bool {
    // SAFETY: a plain number.
    unsafe { proxy_set_effective_context(context_id) == OK }
}

/// A whole header map, in the form that [`Headers::from_wire`](warmroute_core::exchange::Headers::from_wire) reads: one
/// call and one copy, whatever is looked up in it.
pub(crate) fn header_map(map: MapType) -> Vec<u8> {
    let (mut value, mut size) = (null_mut(), 0);
    // SAFETY: the host writes the two results.
    let status = unsafe { proxy_get_header_map_pairs(map as u32, &mut value, &mut size) };
    if status == OK { take(value, size) } else { Vec::new() }
}

/// One header. Empty is not absent.
pub(crate) fn header(map: MapType, name: &str) -> Option<Vec<u8>> {
    let (mut value, mut size) = (null_mut(), 0);
    // SAFETY: the host reads `name` and writes the two results.
    let status = unsafe {
        proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), &mut value, &mut size)
    };
    (status == OK).then(|| take(value, size))
}

/// Sets a header to exactly this value.
pub(crate) fn set_header(map: MapType, name: &str, value: &str) -> bool {
    // SAFETY: the host only reads both.
    let status = unsafe {
        proxy_replace_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    status == OK
}

/// Adds a header to those of the same name.
pub(crate) fn add_header(map: MapType, name: &str, value: &str) -> bool {
    // SAFETY: the host only reads both.
    let status = unsafe {
        proxy_add_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    };
    status == OK
}

/// Takes a header off, with all its values.
pub(crate) fn remove_header(map: MapType, name: &str) {
    // SAFETY: the host only reads it.
    unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
}

/// Bytes `start..start + size` of a buffer, as far as they are there.
pub(crate) fn buffer(buffer: BufferType, start: usize, size: usize) -> Vec<u8> {
    if size == 0 {
        return Vec::new();
    }
    let (mut value, mut got) = (null_mut(), 0);
    // SAFETY: the host writes the two results.
    let status =
        unsafe { proxy_get_buffer_bytes(buffer as u32, start, size, &mut value, &mut got) };
    if status == OK { take(value, got) } else { Vec::new() }
}

/// Puts `bytes` in the place of the `size` bytes that a buffer holds.
pub(crate) fn set_buffer(buffer: BufferType, size: usize, bytes: &[u8]) {
    // SAFETY: the host only reads `bytes`.
    unsafe { proxy_set_buffer_bytes(buffer as u32, 0, size, bytes.as_ptr(), bytes.len()) };
}

/// Adds bytes to the end of a buffer.
pub(crate) fn append_buffer(buffer: BufferType, bytes: &[u8]) {
    if !bytes.is_empty() {
        // SAFETY: the host only reads `bytes`. It adds them if they are to begin at the end or behind it.
        unsafe {
            proxy_set_buffer_bytes(buffer as u32, usize::MAX >> 1, 0, bytes.as_ptr(), bytes.len())
        };
    }
}

/// Takes the first `size` bytes out of a buffer, and leaves nothing in their place.
pub(crate) fn clear_buffer(buffer: BufferType, size: usize) {
    // SAFETY: the host reads no byte of an empty value.
    unsafe { proxy_set_buffer_bytes(buffer as u32, 0, size, null_mut(), 0) };
}

/// Envoy's shared data.
pub(crate) struct HostStore;

impl SharedStore for HostStore {
    fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        match hostcalls::get_shared_data(key) {
            Ok((value, Some(cas))) => Some((value.unwrap_or_default(), cas)),
            _ => None,
        }
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<(), CasMismatch> {
        hostcalls::set_shared_data(key, Some(value), cas).map_err(|_| CasMismatch)
    }
}

/// Starts an HTTP request to a cluster; the root context gets the answer.
pub(crate) fn get(cluster: &str, path: &str, timeout: Duration) -> Option<u32> {
    let headers = vec![(":method", "GET"), (":path", path), (":authority", cluster)];
    hostcalls::dispatch_http_call(cluster, headers, None, vec![], timeout).ok()
}

/// The same with a body.
pub(crate) fn post(cluster: &str, path: &str, body: &[u8], timeout: Duration) -> Option<u32> {
    let headers = vec![(":method", "POST"), (":path", path), (":authority", cluster)];
    hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout).ok()
}

/// Bytes of memory that this VM takes; it never gives any back.
pub(crate) fn memory_bytes() -> usize {
    const PAGE_BYTES: usize = 64 << 10;
    #[cfg(target_arch = "wasm32")]
    let pages = core::arch::wasm32::memory_size(0);
    #[cfg(not(target_arch = "wasm32"))]
    let pages = 0usize;
    usize::saturating_mul(pages, PAGE_BYTES)
}
