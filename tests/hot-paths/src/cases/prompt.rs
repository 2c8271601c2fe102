//! From a body's bytes to the prompt's chain.

use super::{SLICE, Work};
use crate::bodies::chat;
use warmroute_chat_template::{Template, TemplateSource};
use warmroute_core::request::{
    BodyScan, PathClass, RequestFacts, Scratch, render_prompt, visit_prompt,
};
use warmroute_shared_state::prefix::{BLOCK_BYTES, BlockDigester, ChainScope, chain_in_place};

/// The usual shape of a chat template: roles between markers.
const TEMPLATE: &str = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + \
    '<|im_end|>' + '\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

fn read(body: &[u8], scratch: Scratch) -> RequestFacts {
    let mut scan = BodyScan::new(PathClass::Chat, scratch);
    for slice in body.chunks(SLICE) {
        scan.feed(slice).expect("a good body");
    }
    scan.finish().expect("a good body")
}

/// Reads a chat of so many bytes.
pub(super) fn scan(bytes: usize) -> Work {
    scan_body(chat(bytes, 1))
}

/// The same of one in an alphabet whose letters take two bytes, with blanks and full stops between the words.
pub(super) fn scan_russian(bytes: usize) -> Work {
    let text = "Запрос идёт туда, где его начало уже прочли. ".repeat(bytes / 79);
    scan_body(
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into(),
    )
}

fn scan_body(body: Vec<u8>) -> Work {
    let mut scratch = Some(Scratch::default());
    Box::new(move || {
        let facts = read(&body, scratch.take().unwrap_or_default());
        let seen = facts.body_bytes as u64 + facts.messages().len() as u64;
        scratch = Some(facts.into_scratch());
        seen
    })
}

/// The approximate stream of a chat of so many bytes, and its chain.
pub(super) fn approximate(bytes: usize) -> Work {
    let facts = read(&chat(bytes, 1), Scratch::default());
    Box::new(move || {
        hashed(bytes, |out| visit_prompt(&facts, 0, usize::MAX, &mut |piece: &[u8]| out(piece)))
    })
}

/// The rendered prompt of a chat of so many bytes, and its chain. The chat's shape is known from the time before.
pub(super) fn render(bytes: usize) -> Work {
    render_body(bytes, &chat(bytes, 1))
}

/// The same where the template has to run: what does not begin with ASCII is no plain text.
pub(super) fn render_anew(bytes: usize) -> Work {
    let body = String::from_utf8(chat(bytes, 1)).expect("a text");
    render_body(bytes, body.replace(r#""content":""#, r#""content":"…"#).as_bytes())
}

fn render_body(bytes: usize, body: &[u8]) -> Work {
    let facts = read(body, Scratch::default());
    let source = TemplateSource { text: TEMPLATE.to_owned(), special_tokens: Vec::new() };
    let template = Template::compile(&source).expect("a good template");
    Box::new(move || {
        hashed(bytes, |out| render_prompt(&facts, &template, 0, usize::MAX, out).expect("rendered"))
    })
}

fn hashed(bytes: usize, give: impl FnOnce(&mut dyn FnMut(&[u8]))) -> u64 {
    let mut digester = BlockDigester::default();
    let mut chain = Vec::with_capacity(bytes / BLOCK_BYTES + 1);
    give(&mut |piece| digester.push(piece, &mut chain));
    chain_in_place(&ChainScope { model: "m", ..ChainScope::default() }, &mut chain);
    chain.last().copied().unwrap_or_default()
}
