//! What an expression of a template can be: a list, a number, a truth value, a constant.

use crate::shortening::EDGE;
use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, CompareOpKind, Expr};
use minijinja::value::ValueKind;

/// Lists that hold no text by themselves: loops over them meet no characters of a content.
pub(super) const LISTS: [&str; 4] = ["messages", "loop_messages", "tools", "documents"];

/// The longest constant that a text may be compared with or searched for.
pub(super) const MAX_COMPARED: usize = EDGE;

/// The farthest from either end that a text may be indexed, in characters.
const MAX_INDEX: u64 = (EDGE / 4) as u64;

pub(super) fn operator_of(op: CompareOpKind) -> BinOpKind {
    match op {
        CompareOpKind::Eq => BinOpKind::Eq,
        CompareOpKind::Ne => BinOpKind::Ne,
        CompareOpKind::Lt => BinOpKind::Lt,
        CompareOpKind::Lte => BinOpKind::Lte,
        CompareOpKind::Gt => BinOpKind::Gt,
        CompareOpKind::Gte => BinOpKind::Gte,
        CompareOpKind::In | CompareOpKind::NotIn => BinOpKind::In,
    }
}

pub(super) fn constant(expr: &Expr<'_>) -> Option<Value> {
    expr.as_const()
}

/// The texts of a constant that is short, or a list of such; none of a number.
pub(super) fn short_texts(expr: &Expr<'_>) -> Option<Vec<String>> {
    fn collect(value: &Value, texts: &mut Vec<String>) -> Option<()> {
        match value.kind() {
            ValueKind::String => {
                let text = value.as_str().filter(|text| text.len() <= MAX_COMPARED)?;
                texts.push(text.to_owned());
                Some(())
            }
            ValueKind::Seq => value.try_iter().ok()?.try_for_each(|item| collect(&item, texts)),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => Some(()),
            _ => None,
        }
    }
    let mut texts = Vec::new();
    collect(&constant(expr)?, &mut texts)?;
    Some(texts)
}

/// What is a number, or fails.
pub(super) fn is_number(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Const(node) => node.value.kind() == ValueKind::Number,
        Expr::BinOp(node) => match node.op {
            BinOpKind::Add => is_number(&node.left) || is_number(&node.right),
            op => matches!(
                op,
                BinOpKind::Sub
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow
            ),
        },
        Expr::UnaryOp(_) => true,
        Expr::Filter(node) => matches!(node.name, "length" | "count" | "int" | "float"),
        Expr::GetAttr(node) => {
            matches!(&node.expr, Expr::Var(var) if var.id == "loop")
                && !matches!(node.name, "previtem" | "nextitem")
        }
        _ => false,
    }
}

/// What is a number or a truth value.
pub(super) fn is_truth(expr: &Expr<'_>) -> bool {
    !matches!(expr, Expr::GetAttr(_) | Expr::GetItem(_)) && is_no_text(expr) || is_number(expr)
}

/// What is a number, a truth value, or a message's role.
pub(super) fn is_no_text(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Compare(_) | Expr::Test(_) => true,
        Expr::BinOp(node) => {
            matches!(
                node.op,
                BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::In
            ) || is_number(expr)
        }
        _ => is_field(expr, "role") || is_number(expr),
    }
}

/// What has this name in something.
fn is_field(expr: &Expr<'_>, name: &str) -> bool {
    match expr {
        Expr::GetAttr(node) => node.name == name,
        Expr::GetItem(node) => {
            constant(&node.subscript_expr).is_some_and(|key| key.as_str() == Some(name))
        }
        _ => false,
    }
}

/// Whether this is a list, or a map; `is_list` says that of what is something's field of this name.
pub(super) fn is_list_of(expr: &Expr<'_>, is_list: &dyn Fn(&str) -> bool) -> bool {
    let is = |expr: &Expr<'_>| is_list_of(expr, is_list);
    match expr {
        Expr::Var(var) => LISTS.contains(&var.id),
        Expr::List(_) | Expr::Tuple(_) | Expr::Const(_) => true,
        Expr::Slice(node) => is(&node.expr),
        Expr::Filter(node) => match node.name {
            "items" | "dictsort" => true,
            "list" | "map" | "reject" | "rejectattr" | "reverse" | "select" | "selectattr"
            | "sort" | "unique" => node.expr.as_ref().is_some_and(is),
            _ => false,
        },
        Expr::GetAttr(node) => is_list(node.name),
        Expr::GetItem(node) => {
            constant(&node.subscript_expr).is_some_and(|key| key.as_str().is_some_and(is_list))
        }
        Expr::Call(node) => match &node.expr {
            Expr::Var(function) => function.id == "range",
            Expr::GetAttr(method) => matches!(method.name, "items" | "keys" | "values"),
            _ => false,
        },
        Expr::IfExpr(node) => is(&node.true_expr) && node.false_expr.as_ref().is_none_or(is),
        Expr::BinOp(node) => {
            matches!(node.op, BinOpKind::ScOr | BinOpKind::ScAnd)
                && is(&node.left)
                && is(&node.right)
        }
        _ => false,
    }
}

pub(super) fn is_split(expr: &Expr<'_>) -> bool {
    matches!(expr, Expr::Call(call) if matches!(&call.expr, Expr::GetAttr(method) if method.name == "split"))
}

pub(super) fn is_near(bound: &Expr<'_>) -> bool {
    constant(bound)
        .and_then(|value| value.as_i64())
        .is_some_and(|index| index.unsigned_abs() <= MAX_INDEX)
}
