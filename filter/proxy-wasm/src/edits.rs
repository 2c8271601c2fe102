//! Carries a step out: headers and body.

use crate::host;
use proxy_wasm::types::{BufferType, MapType};
use warmroute_core::exchange::{Forward, ResponseEdit};
use warmroute_core::request::{Splice, spliced};

/// Changes a request on its way out.
pub(crate) fn change_request(forward: &Forward) {
    const MAP: MapType = MapType::HttpRequestHeaders;
    if let Some(length) = splice_body(&forward.splices)
        && host::header(MAP, "content-length").is_some()
    {
        host::set_header(MAP, "content-length", &length.to_string());
    }
    for name in &forward.remove_headers {
        host::remove_header(MAP, name);
    }
    for (name, value) in &forward.set_headers {
        host::set_header(MAP, name, value);
    }
    for (name, value) in &forward.add_headers {
        host::add_header(MAP, name, value);
    }
}

/// The whole body is held back in Envoy: a few bytes of it are replaced, all else goes as it was sent. Returns its new
/// length, if it was changed.
fn splice_body(splices: &[Splice]) -> Option<usize> {
    if splices.is_empty() {
        return None;
    }
    let body = host::buffer(BufferType::HttpRequestBody, 0, usize::MAX >> 1);
    // What is behind the last change is not copied once more: a body can be megabytes.
    let end = splices.iter().map(|splice| splice.span.range().end).max()?;
    let (changed, rest) = body.split_at_checked(end)?;
    let changed = spliced(changed, &mut splices.to_vec())?;
    host::set_buffer(BufferType::HttpRequestBody, body.len(), &changed);
    host::append_buffer(BufferType::HttpRequestBody, rest);
    Some(changed.len().saturating_add(rest.len()))
}

pub(crate) fn change_response(edit: &ResponseEdit) {
    const MAP: MapType = MapType::HttpResponseHeaders;
    if edit.changes_length {
        host::remove_header(MAP, "content-length");
    }
    for (name, value) in &edit.set_headers {
        host::set_header(MAP, name, value);
    }
}
