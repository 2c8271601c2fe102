//! The least that a filter for prompts does: nothing, reading the headers, or waiting for the whole body and reading it.
//! Its plugin configuration says which, by `"floor": "nothing"`, `"headers"` or `"body"`.

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, MapType};

/// As Warmroute reads bodies.
const READ_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Headers,
    Body,
}

struct Root(Reads);

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size);
        let bytes = bytes.ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let named =
            [("nothing", Reads::Nothing), ("headers", Reads::Headers), ("body", Reads::Body)];
        let asked = named.iter().find(|(name, _)| text.contains(&format!("\"floor\": \"{name}\"")));
        let Some((_, reads)) = asked else { return false };
        self.0 = *reads;
        true
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { reads: self.0, taken: 0 }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    reads: Reads,
    taken: usize,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.reads == Reads::Nothing {
            return Action::Continue;
        }
        let pairs = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        if self.reads == Reads::Headers || pairs.is_empty() || end_of_stream {
            return Action::Continue;
        }
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.reads != Reads::Body {
            return Action::Continue;
        }
        let unread = size.saturating_sub(self.taken);
        if unread >= READ_BYTES || end_of_stream {
            let piece = hostcalls::get_buffer(BufferType::HttpRequestBody, self.taken, unread);
            self.taken = self.taken.saturating_add(piece.ok().flatten().map_or(0, |p| p.len()));
        }
        if end_of_stream { Action::Continue } else { Action::Pause }
    }
}

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root(Reads::Nothing)));
}}
