//! The quick way: which templates it is open for, and where texts are cut.

use super::{compile, says};
use crate::audit::audit;
use crate::content_format::detect;
use crate::environment::syntax;
use crate::{ChatRequest, Message};
use proptest::prelude::*;

fn is_open(text: &str) -> bool {
    let tree = minijinja::machinery::parse(text, "chat", syntax().unwrap()).unwrap();
    let tree = core::slice::from_ref(&tree);
    audit(tree, detect(tree)).is_some()
}

#[test]
fn templates_that_only_put_contents_somewhere() {
    for text in [
        "{{ messages[0].content + '\n' ~ x }}",
        "{% if '</think>' in content %}{{ content.split('</think>')[-1].lstrip('\n') }}{% endif %}",
        "{{ content | trim }}{{ content.strip(' \n') }}{{ content.replace('<x>', 'y') }}",
        "{% if content.startswith('<a>') and content.endswith(('b', 'c')) %}{% endif %}",
        "{% if message.content == '' or message.role != role or x is none %}{% endif %}",
        "{% for m in messages[1:] | selectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}",
        "{% for m in messages[::-1] %}{{ messages[loop.index0 - 1].role }}{% endfor %}",
        "{% for t in message.tool_calls or [] %}{{ t.function.arguments | tojson }}{% endfor %}",
        "{% for k, v in tool.items() %}{{ k }}{% endfor %}{% for i in range(3) %}{% endfor %}",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% if loop.index0 > ns.n and messages | length > 2 %}{% endif %}",
        // These fail on a shortened text when they run.
        "{{ content | length }}{{ content.upper() }}{{ content | tojson }}",
    ] {
        assert!(is_open(text), "{text}");
    }
}

#[test]
fn templates_that_could_tell_a_shortened_text() {
    for text in [
        "{{ content == other }}",
        "{{ content < 'x' }}",
        "{{ content[:100] }}",
        "{{ content[::-1] }}",
        "{{ content[n] }}",
        "{{ content[200] }}",
        "{{ x in content }}",
        "{{ '1' in content }}",
        "{{ '' in content }}",
        "{{ content.split() }}",
        "{{ content.split(x) }}",
        "{{ content.split('') }}",
        "{{ content.strip('abc') }}",
        "{{ content | trim(x) }}",
        "{{ content.startswith(x) }}",
        "{{ content | upper }}",
        "{{ content | list }}",
        "{{ messages | map('upper') }}",
        "{{ messages | selectattr('content', 'equalto', x) }}",
        "{{ content is eq(x) }}",
        "{{ content is ge('x') }}",
        "{{ {content: 1} }}",
        "{{ loop.changed(content) }}",
        "{% for c in text %}{% endfor %}",
        "{% set messages = messages[0].content %}{% for c in messages %}{% endfor %}",
        "{% set ns.x = y %}{% for c in ns.x %}{% endfor %}",
        "{% for c in messages[0].content %}{% endfor %}",
        "{% macro m(tools) %}{% endmacro %}",
        "{% filter upper %}{{ content }}{% endfilter %}",
        // More first bytes to look for than one pass can.
        "{{ 'ax' in c and 'bx' in c and 'cx' in c }}",
    ] {
        assert!(!is_open(text), "{text}");
    }
}

/// The pieces of a prompt that shows one content, if it took the quick way.
fn pieces(text: &str) -> Option<Vec<String>> {
    let template = compile("{{ messages[0].content }}{{ messages[1].content }}");
    let filler = "filler ".repeat(1000);
    let request = ChatRequest {
        messages: vec![says("user", text), says("user", &filler)],
        ..ChatRequest::default()
    };
    let mut pieces = Vec::new();
    let out = &mut |piece: &[u8]| pieces.push(String::from_utf8(piece.to_vec()).unwrap());
    template.render_shortened(&request, 0, usize::MAX, out).then_some(pieces)
}

#[test]
fn what_is_left_out() {
    let left_out = |text: &str| pieces(text).map(|pieces| pieces.len());
    let words = "words and ".repeat(200);
    // The filler alone makes three pieces, another text two more.
    for (text, count) in [
        ("short".to_owned(), 3),
        (words.clone(), 5),
        // Nothing to stop stripping in reach of an end.
        (format!("{}{words}", " ".repeat(500)), 3),
        (format!("{words}{}", "\n".repeat(500)), 3),
        // No place to cut.
        ("漢".repeat(1000), 3),
        (format!("{words}{}", "漢".repeat(300)), 3),
    ] {
        assert_eq!(left_out(&text), Some(count), "{}", text.len());
    }
    // What looks like a mark: all is rendered the plain way.
    assert_eq!(left_out("\u{10fffe}0\u{10fffe}"), None);
    assert_eq!(left_out(&format!("{words}\u{10fffe}")), None);
}

#[test]
fn a_name_that_looks_like_a_mark_is_no_mark() {
    let template = compile("{{ messages[0].name }}{{ messages[0].content }}");
    let text = "words ".repeat(2000);
    let message = Message { name: Some("\u{10fffe}0\u{10fffe}"), ..says("user", &text) };
    let request = ChatRequest { messages: vec![message], ..ChatRequest::default() };
    let mut prompt = Vec::new();
    template.render_chat(&request, 0, usize::MAX, &mut |p| prompt.extend_from_slice(p)).unwrap();
    assert_eq!(prompt, format!("\u{10fffe}0\u{10fffe}{text}").into_bytes());
}

proptest! {
    #[test]
    fn later_pieces_begin_with_ascii(text in "[a-z\u{300}-\u{310}é漢 ]{1,3000}") {
        let pieces = pieces(&text).unwrap();
        prop_assert!(pieces.iter().skip(1).all(|piece| piece.starts_with(|c: char| c.is_ascii())));
        prop_assert!(pieces.concat().starts_with(&text));
    }
}
