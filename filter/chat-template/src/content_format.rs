//! Whether a template takes a message's content as a string or as a list of parts.
//!
//! vLLM looks for a loop over a message's content in the syntax tree (`_detect_content_format` in
//! `vllm/renderers/hf.py`). This is the same search with the same blind spots, since what counts is what vLLM
//! decides, not what the template could take.

use crate::syntax_tree::{Node, walk};
use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Macro, Stmt};

/// How contents reach the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// As strings, text parts joined by newlines.
    Strings,
    /// As lists of parts.
    Parts,
}

/// What vLLM would find.
pub(crate) fn detect(template: &[Stmt<'_>]) -> ContentFormat {
    // Where vLLM trips over a target that is no plain name, it falls back to strings.
    match loops_over_content(template) {
        Ok(true) => ContentFormat::Parts,
        Ok(false) | Err(NoPlainName) => ContentFormat::Strings,
    }
}

/// A loop or assignment with a target that is no plain name (`a, b`).
struct NoPlainName;

fn target_name<'s>(target: &Expr<'s>) -> Result<&'s str, NoPlainName> {
    match target {
        Expr::Var(name) => Ok(name.id),
        _ => Err(NoPlainName),
    }
}

fn is_var(expr: &Expr<'_>, name: &str) -> bool {
    matches!(expr, Expr::Var(var) if var.id == name)
}

/// `var.key` or `var["key"]`.
fn is_attribute(expr: &Expr<'_>, var: &str, key: &str) -> bool {
    match expr {
        Expr::GetAttr(node) => node.name == key && is_var(&node.expr, var),
        Expr::GetItem(node) => {
            let is_key =
                matches!(&node.subscript_expr, Expr::Const(c) if c.value.as_str() == Some(key));
            is_key && is_var(&node.expr, var)
        }
        _ => false,
    }
}

/// The variable, or its attribute `key`, perhaps sliced, filtered or tested.
fn is_var_or_elements(expr: &Expr<'_>, var: &str, key: Option<&str>) -> bool {
    match expr {
        Expr::Filter(node) => {
            node.expr.as_ref().is_some_and(|inner| is_var_or_elements(inner, var, key))
        }
        Expr::Test(node) => is_var_or_elements(&node.expr, var, key),
        Expr::Slice(node) => is_var_or_elements(&node.expr, var, key),
        _ => match key {
            Some(key) => is_attribute(expr, var, key),
            None => is_var(expr, var),
        },
    }
}

/// What the search looks at: all of a kind, wherever it stands.
#[derive(Default)]
struct Inventory<'t, 's> {
    assignments: Vec<(&'t Expr<'s>, &'t Expr<'s>)>,
    loops: Vec<&'t ForLoop<'s>>,
    macros: Vec<&'t Macro<'s>>,
    /// Called expression and arguments.
    calls: Vec<(&'t Expr<'s>, &'t [CallArg<'s>])>,
}

fn inventory<'t, 's>(template: &'t [Stmt<'s>]) -> Inventory<'t, 's> {
    let mut found = Inventory::default();
    walk(template, &mut |node| match node {
        Node::Stmt(Stmt::Set(node)) => found.assignments.push((&node.target, &node.expr)),
        Node::Stmt(Stmt::ForLoop(node)) => found.loops.push(node),
        Node::Stmt(Stmt::Macro(node)) => found.macros.push(node),
        Node::Stmt(Stmt::CallBlock(node)) => found.calls.push((&node.call.expr, &node.call.args)),
        Node::Stmt(Stmt::Do(node)) => found.calls.push((&node.call.expr, &node.call.args)),
        Node::Expr(Expr::Call(node)) => found.calls.push((&node.expr, &node.args)),
        _ => {}
    });
    found
}

fn loops_over_content(template: &[Stmt<'_>]) -> Result<bool, NoPlainName> {
    let all = inventory(template);
    let messages = message_names(&all)?;
    let is_content = |expr: &Expr<'_>| {
        messages.iter().any(|name| is_var_or_elements(expr, name, Some("content")))
    };

    let mut loops_in_macros: Vec<(&ForLoop<'_>, Vec<&str>)> = Vec::new();
    for node in &all.macros {
        let parameters = content_parameters(node, &all, &is_content);
        walk(&node.body, &mut |inner| {
            if let Node::Stmt(Stmt::ForLoop(inner)) = inner {
                loops_in_macros.push((inner, parameters.clone()));
            }
        });
    }
    for node in &all.loops {
        // Nested macros: vLLM's table keeps what the last one says, if it says anything.
        let mut own = loops_in_macros.iter().filter(|(inner, _)| core::ptr::eq(*inner, *node));
        let in_macro = own.clone().next().is_some();
        let parameters = own.rfind(|(_, parameters)| !parameters.is_empty());
        let over_parameter =
            |name: &str| parameters.is_some_and(|(_, parameters)| parameters.contains(&name));
        let found = match &node.iter {
            iter if is_content(iter) => true,
            Expr::Var(var) if over_parameter(var.id) => true,
            Expr::Var(var) => !in_macro && var.id == "content",
            _ => false,
        };
        if found {
            return target_name(&node.target).map(|_| true);
        }
    }
    Ok(false)
}

/// Names of variables that hold one message: the targets of loops over `messages`, or over a variable assigned
/// from it.
fn message_names<'s>(all: &Inventory<'_, 's>) -> Result<Vec<&'s str>, NoPlainName> {
    let mut lists = vec!["messages"];
    let mut next = 0usize;
    while let Some(list) = lists.get(next).copied() {
        next = next.saturating_add(1);
        for (target, value) in &all.assignments {
            if is_var_or_elements(value, list, None) {
                let name = target_name(target)?;
                if !lists.contains(&name) {
                    lists.push(name);
                }
            }
        }
    }
    let over_messages =
        |node: &&&ForLoop<'s>| lists.iter().any(|list| is_var_or_elements(&node.iter, list, None));
    all.loops.iter().filter(over_messages).map(|node| target_name(&node.target)).collect()
}

/// The parameters of a macro that some call gives a message's content.
fn content_parameters<'s>(
    node: &Macro<'s>,
    all: &Inventory<'_, 's>,
    is_content: &dyn Fn(&Expr<'_>) -> bool,
) -> Vec<&'s str> {
    let names: Vec<_> = node.args.iter().filter_map(|arg| target_name(arg).ok()).collect();
    let mut found = Vec::new();
    for (_, arguments) in all.calls.iter().filter(|(called, _)| is_var(called, node.name)) {
        for (index, argument) in arguments.iter().enumerate() {
            match argument {
                CallArg::Pos(value) if is_content(value) => found.extend(names.get(index)),
                CallArg::Kwarg(key, value) if is_content(value) && names.contains(key) => {
                    found.push(*key);
                }
                _ => {}
            }
        }
    }
    found
}
