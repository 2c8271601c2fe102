//! The few bytes of a body that are changed on its way to the engine; everything else goes out as it was sent.

use super::facts::{ByteSpan, RequestFacts};
use serde_json::Value;

/// Fields of `stream_options` that ask for usage at the end, and with each chunk: the engine hears the second only with
/// the first.
const ASKS_LAST: &[&str] = &[r#""include_usage":true"#];
const ASKS_EACH: &[&str] = &[r#""include_usage":true"#, r#""continuous_usage_stats":true"#];

/// New bytes in the place of some of the body's. An empty span is an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// What is replaced.
    pub span: ByteSpan,
    /// What comes instead.
    pub bytes: Vec<u8>,
}

impl RequestFacts {
    /// Names another model: all values of `model`, however often it was given; at the front of the body if it was
    /// not.
    #[must_use]
    pub fn model_splices(&self, name: &str) -> Vec<Splice> {
        let name = Value::from(name).to_string();
        match self.model_spans() {
            [] => vec![self.field(&format!(r#""model":{name},"#))],
            spans => spans
                .iter()
                .map(|span| Splice { span: *span, bytes: name.clone().into_bytes() })
                .collect(),
        }
    }

    /// Asks a stream to tell its usage: at its end, or, if `continuous`, with each chunk. Empty if there is nothing to
    /// ask: it does already, or its API tells it by itself. What cannot be understood of `stream_options` is left for
    /// the engine to refuse.
    #[must_use]
    pub fn usage_splices(&self, continuous: bool) -> Vec<Splice> {
        if !self.stream || !self.path.asks_for_usage() {
            return Vec::new();
        }
        let asks = if continuous { ASKS_EACH } else { ASKS_LAST };
        let Some(options) = self.stream_options else {
            return vec![self.field(&format!(r#""stream_options":{{{}}},"#, asks.join(",")))];
        };
        if options.is_null {
            let bytes = format!("{{{}}}", asks.join(",")).into_bytes();
            return vec![Splice { span: options.span, bytes }];
        }
        if !options.is_object {
            return Vec::new();
        }
        let mut splices = Vec::new();
        let mut missing = Vec::new();
        let fields = [options.include_usage, options.continuous_usage_stats];
        for (field, ask) in fields.into_iter().zip(asks) {
            match field {
                // The engine takes `0` and `"off"` for false, too.
                Some(field) if field.value == Some(true) => {}
                Some(field) => splices.push(Splice { span: field.span, bytes: b"true".to_vec() }),
                None => missing.push(*ask),
            }
        }
        if !missing.is_empty() {
            let comma = if options.is_empty { "" } else { "," };
            let at = options.span.start.saturating_add(1);
            splices.push(insertion(at, &format!("{}{comma}", missing.join(","))));
        }
        splices
    }

    /// A field more, at the front of the body: no body that was accepted is without any.
    fn field(&self, field: &str) -> Splice {
        insertion(self.body_start.saturating_add(1), field)
    }
}

fn insertion(at: u32, bytes: &str) -> Splice {
    Splice { span: ByteSpan { start: at, end: at }, bytes: bytes.into() }
}

/// The body with its splices, which may come in any order; at one place they keep theirs. `None` if one lies outside
/// the body or over another: then they are not this body's.
#[must_use]
pub fn spliced(body: &[u8], splices: &mut [Splice]) -> Option<Vec<u8>> {
    splices.sort_by_key(|splice| splice.span.start);
    let added: usize = splices.iter().map(|splice| splice.bytes.len()).sum();
    let mut out = Vec::with_capacity(body.len().saturating_add(added));
    let mut next = 0;
    for splice in splices.iter() {
        let range = splice.span.range();
        // Also that it does not end before it starts.
        body.get(range.clone())?;
        out.extend_from_slice(body.get(next..range.start)?);
        out.extend_from_slice(&splice.bytes);
        next = range.end;
    }
    out.extend_from_slice(body.get(next..)?);
    Some(out)
}
