//! Walking a template's syntax tree.

use minijinja::machinery::ast::{CallArg, Expr, Stmt};

/// A node of the tree.
#[derive(Clone, Copy)]
pub(crate) enum Node<'t, 's> {
    /// A statement.
    Stmt(&'t Stmt<'s>),
    /// An expression.
    Expr(&'t Expr<'s>),
}

/// Calls `visit` with every node below and including `statements`, outer nodes first.
pub(crate) fn walk<'t, 's>(statements: &'t [Stmt<'s>], visit: &mut dyn FnMut(Node<'t, 's>)) {
    for statement in statements {
        visit(Node::Stmt(statement));
        walk_statement(statement, visit);
    }
}

fn walk_statement<'t, 's>(statement: &'t Stmt<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    match statement {
        Stmt::Template(node) => walk(&node.children, visit),
        Stmt::EmitExpr(node) => walk_expr(&node.expr, visit),
        Stmt::ForLoop(node) => {
            walk_expr(&node.target, visit);
            walk_expr(&node.iter, visit);
            if let Some(filter) = &node.filter_expr {
                walk_expr(filter, visit);
            }
            walk(&node.body, visit);
            walk(&node.else_body, visit);
        }
        Stmt::IfCond(node) => {
            walk_expr(&node.expr, visit);
            walk(&node.true_body, visit);
            walk(&node.false_body, visit);
        }
        Stmt::WithBlock(node) => {
            for (target, value) in &node.assignments {
                walk_expr(target, visit);
                walk_expr(value, visit);
            }
            walk(&node.body, visit);
        }
        Stmt::Set(node) => {
            walk_expr(&node.target, visit);
            walk_expr(&node.expr, visit);
        }
        Stmt::SetBlock(node) => {
            walk_expr(&node.target, visit);
            if let Some(filter) = &node.filter {
                walk_expr(filter, visit);
            }
            walk(&node.body, visit);
        }
        Stmt::AutoEscape(node) => {
            walk_expr(&node.enabled, visit);
            walk(&node.body, visit);
        }
        Stmt::FilterBlock(node) => {
            walk_expr(&node.filter, visit);
            walk(&node.body, visit);
        }
        Stmt::Macro(node) => {
            walk_exprs(&node.args, visit);
            walk_exprs(&node.defaults, visit);
            walk(&node.body, visit);
        }
        Stmt::CallBlock(node) => {
            walk_expr(&node.call.expr, visit);
            walk_arguments(&node.call.args, visit);
            walk_exprs(&node.macro_decl.args, visit);
            walk_exprs(&node.macro_decl.defaults, visit);
            walk(&node.macro_decl.body, visit);
        }
        Stmt::Do(node) => {
            walk_expr(&node.call.expr, visit);
            walk_arguments(&node.call.args, visit);
        }
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
    }
}

fn walk_exprs<'t, 's>(exprs: &'t [Expr<'s>], visit: &mut dyn FnMut(Node<'t, 's>)) {
    for expr in exprs {
        walk_expr(expr, visit);
    }
}

fn walk_arguments<'t, 's>(arguments: &'t [CallArg<'s>], visit: &mut dyn FnMut(Node<'t, 's>)) {
    for argument in arguments {
        walk_expr(argument_value(argument), visit);
    }
}

/// What a call's argument passes.
pub(crate) fn argument_value<'t, 's>(argument: &'t CallArg<'s>) -> &'t Expr<'s> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

fn walk_expr<'t, 's>(expr: &'t Expr<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    visit(Node::Expr(expr));
    match expr {
        Expr::Var(_) | Expr::Const(_) => {}
        Expr::Slice(node) => {
            walk_expr(&node.expr, visit);
            for bound in [&node.start, &node.stop, &node.step].into_iter().flatten() {
                walk_expr(bound, visit);
            }
        }
        Expr::UnaryOp(node) => walk_expr(&node.expr, visit),
        Expr::BinOp(node) => {
            walk_expr(&node.left, visit);
            walk_expr(&node.right, visit);
        }
        Expr::Compare(node) => {
            walk_expr(&node.expr, visit);
            for step in &node.ops {
                walk_expr(&step.expr, visit);
            }
        }
        Expr::IfExpr(node) => {
            walk_expr(&node.test_expr, visit);
            walk_expr(&node.true_expr, visit);
            if let Some(other) = &node.false_expr {
                walk_expr(other, visit);
            }
        }
        Expr::Filter(node) => {
            if let Some(value) = &node.expr {
                walk_expr(value, visit);
            }
            walk_arguments(&node.args, visit);
        }
        Expr::Test(node) => {
            walk_expr(&node.expr, visit);
            walk_arguments(&node.args, visit);
        }
        Expr::GetAttr(node) => walk_expr(&node.expr, visit),
        Expr::GetItem(node) => {
            walk_expr(&node.expr, visit);
            walk_expr(&node.subscript_expr, visit);
        }
        Expr::Call(node) => {
            walk_expr(&node.expr, visit);
            walk_arguments(&node.args, visit);
        }
        Expr::List(node) => walk_exprs(&node.items, visit),
        Expr::Tuple(node) => walk_exprs(&node.items, visit),
        Expr::Map(node) => {
            walk_exprs(&node.keys, visit);
            walk_exprs(&node.values, visit);
        }
    }
}
