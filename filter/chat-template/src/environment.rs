//! Jinja as `transformers` sets it up (`_compile_jinja_template` in `transformers/utils/chat_template_utils.py`).

use crate::builtins::{FILTERS, TESTS, add_filters, add_functions, add_tests};
use crate::clock::strftime;
use crate::methods;
use crate::syntax_tree::{Node, walk};
use core::fmt;
use minijinja::machinery::ast::{Expr, Stmt};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Rest;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;

/// The most steps of one rendering: instructions, items and 64-byte pieces of text made on the way. A chat of 400
/// messages and 220 KB takes about 60,000.
const FUEL: u64 = 4_000_000;

/// The name under which a rendering's clock, seconds since 1970, is found.
pub(crate) const CLOCK: &str = "warmroute_clock";

/// `trim_blocks` and `lstrip_blocks`, as `transformers` sets them.
pub(crate) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// What `transformers` gives a template; `bare` leaves out its additions.
pub(crate) fn environment(bare: bool) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::empty();
    environment.set_syntax(syntax()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(100);
    environment.set_unknown_method_callback(methods::call);
    add_filters(&mut environment);
    add_tests(&mut environment);
    add_functions(&mut environment);
    if !bare {
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
    }
    Ok(environment)
}

/// `{% generation %}` … `{% endgeneration %}` mark what a model said, for training; a `with` block has their scope.
pub(crate) fn without_generation_tags(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{%") {
        let inner = after.trim_start_matches(['-', '+']).trim_start();
        let tag = ["generation", "endgeneration"].into_iter().find(|name| {
            inner.strip_prefix(name).is_some_and(|tail| {
                tail.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
            })
        });
        out.push_str(before);
        out.push_str("{%");
        rest = after;
        if let Some(name) = tag {
            let skipped = after.len().saturating_sub(inner.len());
            out.push_str(after.get(..skipped).unwrap_or_default());
            out.push_str(if name == "generation" { "with" } else { "endwith" });
            rest = inner.get(name.len()..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// A filter or test that the template names and `environment` does not have. Jinja refuses such a template, too, if it
/// does not know the name either.
pub(crate) fn unknown_name<'s>(template: &[Stmt<'s>]) -> Option<(&'s str, usize)> {
    let mut unknown = None;
    walk(template, &mut |node| {
        let (name, known, line) = match node {
            Node::Expr(Expr::Filter(node)) => (node.name, FILTERS, node.span().start_line),
            Node::Expr(Expr::Test(node)) => (node.name, TESTS, node.span().start_line),
            _ => return,
        };
        if unknown.is_none() && !known.contains(&name) {
            unknown = Some((name, usize::from(line)));
        }
    });
    unknown
}

/// The source of an error that the template raised by itself.
#[derive(Debug)]
pub(crate) struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}

impl core::error::Error for Raised {}

/// The message is dropped: templates put roles and contents into it.
fn raise_exception(_message: Rest<Value>) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, Error> {
    let clock = state.lookup(CLOCK).and_then(|clock| u64::try_from(clock).ok());
    clock
        .and_then(|unix_s| strftime(format, unix_s))
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: unknown directive"))
}
