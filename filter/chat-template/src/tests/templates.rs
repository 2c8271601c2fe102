//! Compiling: what is refused, and what a template is found to want.

use super::{compile, one, render};
use crate::content_format::{ContentFormat, detect};
use crate::environment::syntax;
use crate::{RenderError, Template, TemplateError, TemplateSource};

fn refusal(text: &str) -> TemplateError {
    let source = TemplateSource { text: text.into(), special_tokens: vec![] };
    Template::compile(&source).err().unwrap()
}

#[test]
fn templates_that_cannot_be_used() {
    assert_eq!(refusal("<|start|>assistant<|channel|>final"), TemplateError::Harmony);
    for (text, at) in [
        ("\n{% if x %}", 2),
        ("{{ messages | shuffle }}", 1),
        ("\n\n{{ 1 is prime }}", 3),
        ("{% include 'x' %}", 1),
        ("{{ 'a }}", 1),
    ] {
        let TemplateError::Syntax { line, .. } = refusal(text) else { panic!("{text}") };
        assert_eq!(line, at, "{text}");
    }
}

/// The verdicts of vLLM 0.32's `_detect_content_format`.
#[test]
fn content_formats_as_vllm_finds_them() {
    let (strings, parts) = (ContentFormat::Strings, ContentFormat::Parts);
    for (text, expected) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", strings),
        (
            "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
            parts,
        ),
        (
            "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}",
            parts,
        ),
        (
            "{% for m in messages[1:] %}{% for p in m.content | list %}{% endfor %}{% endfor %}",
            parts,
        ),
        (
            "{% set ms = messages %}{% set rest = ms[1:] %}{% for m in rest %}{% for p in m.content[0:1] %}{% endfor %}{% endfor %}",
            parts,
        ),
        (
            "{% for m in messages | reject('none') %}{% for p in m.content %}{% endfor %}{% endfor %}",
            parts,
        ),
        ("{% for m in others %}{% for p in m.content %}{% endfor %}{% endfor %}", strings),
        ("{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}", strings),
        // A loop over something called `content`, wherever that comes from, but not inside a macro.
        ("{% for p in content %}{% endfor %}", parts),
        ("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}", strings),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            parts,
        ),
        (
            "{% macro show(a, c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(1, c=m['content']) }}{% endfor %}",
            parts,
        ),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.role) }}{% endfor %}",
            strings,
        ),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{% set x = show(m.content) %}{% endfor %}",
            parts,
        ),
        // Targets that are no plain names trip vLLM.
        ("{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}", strings),
        (
            "{% set a = messages %}{% set b = a %}{% set a = b %}{% for m in b %}{% for p in m.content %}{% endfor %}{% endfor %}",
            parts,
        ),
        (
            "{% set ns = namespace() %}{% set ns.m = messages %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
            strings,
        ),
    ] {
        let tree = minijinja::machinery::parse(text, "chat", syntax().unwrap()).unwrap();
        assert_eq!(detect(core::slice::from_ref(&tree)), expected, "{text}");
    }
}

#[test]
fn where_system_messages_may_stand() {
    for (text, merges) in [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", false),
        (
            "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('x') }}{% endif %}{% endfor %}",
            true,
        ),
        ("{% if messages[2].role != 'user' %}{{ raise_exception() }}{% endif %}", true),
        // vLLM probes with a bare Jinja: what only `transformers` adds makes the probe fail.
        ("{{ strftime_now('%Y') }}", true),
        ("{{ bos_token + 'x' }}", true),
        ("{{ bos_token }}", false),
        ("{% generation %}x{% endgeneration %}", true),
    ] {
        assert_eq!(compile(text).merges_inline_system(), merges, "{text}");
    }
}

#[test]
fn how_thinking_is_turned_off() {
    for (text, effort) in [
        ("{{ messages[0].content }}", "low"),
        ("{% if enable_thinking is defined and not enable_thinking %}off{% endif %}", "none"),
        ("{{ reasoning_effort }}", "none"),
        ("{% if reasoning_effort == 'none' %}{{ raise_exception('x') }}{% endif %}", "low"),
        ("{{ 'some' if reasoning_effort in ['low', 'none'] else 'more' }}", "low"),
    ] {
        assert_eq!(compile(text).disabled_thinking_effort(), effort, "{text}");
    }
}

#[test]
fn work_is_bounded() {
    for text in [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% set ns = namespace(x='0123456789') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'x' * 90000000000 }}",
    ] {
        assert!(render(text, &one()).is_err(), "{text}");
    }
    let long = "é{{ 'x' * 9997 }}é{{ messages[0].content }}";
    assert_eq!(render(long, &one()), Ok(format!("é{}", "x".repeat(9997))), "no half character");
    let raising = format!("{long}{{{{ raise_exception('x') }}}}");
    assert_eq!(render(&raising, &one()), Err(RenderError::Raised));
}

#[test]
fn failures_say_where_and_nothing_of_the_request() {
    let raising = "\n{{ raise_exception('no: ' + messages[0].content) }}";
    assert_eq!(render(raising, &one()), Err(RenderError::Raised));
    let within_a_macro = "{% macro m() %}{{ raise_exception('x') }}{% endmacro %}{{ m() }}";
    assert_eq!(render(within_a_macro, &one()), Err(RenderError::Raised));
    let failed = render("\n\n{{ messages[0].content + 1 }}", &one());
    assert!(matches!(failed, Err(RenderError::Failed { line: 3, .. })), "{failed:?}");
}

#[test]
fn the_date_is_the_callers() {
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", &one()).as_deref(), Ok("30 Nov 2026"));
    // A directive whose form is not known.
    assert!(render("{{ strftime_now('%c') }}", &one()).is_err());
}
