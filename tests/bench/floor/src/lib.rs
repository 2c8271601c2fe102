//! The least that a filter for prompts does: nothing, reading the headers, waiting for the whole body and taking it in, or
//! also reading its JSON and hashing the prompt in blocks, as Warmroute does it. It never decides anything.
//! Its plugin configuration says which, by `"floor": "nothing"`, `"headers"`, `"body"` or `"prompt"`.

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, MapType};
use warmroute_core::request::{BodyScan, PathClass, Scratch, digest_prompt};

/// As Warmroute reads bodies.
const READ_BYTES: usize = 64 << 10;

/// As much of a prompt as Warmroute hashes.
const MOST_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Headers,
    Body,
    Prompt,
}

struct Root(Reads);

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size);
        let bytes = bytes.ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let named = [
            ("nothing", Reads::Nothing),
            ("headers", Reads::Headers),
            ("body", Reads::Body),
            ("prompt", Reads::Prompt),
        ];
        let asked = named.iter().find(|(name, _)| text.contains(&format!("\"floor\": \"{name}\"")));
        let Some((_, reads)) = asked else { return false };
        self.0 = *reads;
        true
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream { reads: self.0, taken: 0, scan: None }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream {
    reads: Reads,
    taken: usize,
    scan: Option<BodyScan>,
}

impl Stream {
    /// The prompt's blocks, once all of it is there. They are good for nothing here.
    fn hash(&mut self, piece: &[u8], last: bool) {
        let scan = self.scan.get_or_insert_with(|| {
            let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
            scan.digest_messages(MOST_BYTES);
            scan
        });
        let _ = scan.feed(piece);
        if last && let Some(facts) = self.scan.take().and_then(|scan| scan.finish().ok()) {
            let mut blocks = Vec::new();
            core::hint::black_box(digest_prompt(&facts, MOST_BYTES, &mut blocks));
        }
    }
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
        if !matches!(self.reads, Reads::Body | Reads::Prompt) {
            return Action::Continue;
        }
        let unread = size.saturating_sub(self.taken);
        if unread >= READ_BYTES || end_of_stream {
            let piece = hostcalls::get_buffer(BufferType::HttpRequestBody, self.taken, unread);
            let piece = piece.ok().flatten().unwrap_or_default();
            self.taken = self.taken.saturating_add(piece.len());
            if self.reads == Reads::Prompt {
                self.hash(&piece, end_of_stream);
            }
        }
        if end_of_stream { Action::Continue } else { Action::Pause }
    }
}

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Root(Reads::Nothing)));
}}
