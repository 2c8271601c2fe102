//! Whether a template's prompts can be made the quick way ([`shortening`](crate::shortening)): a look at its syntax
//! tree for whatever could tell a shortened text from a whole one and is not caught when it runs. And what it does to texts,
//! for [`plain_text`](crate::plain_text).

mod expressions;

use self::expressions::{
    LISTS, MAX_COMPARED, constant, is_list_of, is_near, is_no_text, is_number, is_split, is_truth,
    operator_of, short_texts,
};
use crate::content_format::ContentFormat;
use crate::plain_text::TextUses;
use crate::shortening::{MARK, Needles};
use crate::syntax_tree::{Node, argument_value, walk};
use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Filter, GetItem, Stmt, Test};

/// What a template does to texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audited {
    /// What it looks for in them.
    pub(crate) needles: Needles,
    /// What else it does to them; `None` if that may be more than [`TextUses`] can say.
    pub(crate) uses: Option<TextUses>,
}

/// What the template does to texts; `None` if it may do more with them than is safe.
pub(crate) fn audit(template: &[Stmt<'_>], format: ContentFormat) -> Option<Audited> {
    // Not lists, though attributes: texts by name, and what a namespace may hold.
    let mut texts = vec!["reasoning", "reasoning_content", "text"];
    if format == ContentFormat::Strings {
        texts.push("content");
    }
    walk(template, &mut |node| match node {
        Node::Stmt(Stmt::Set(node)) => texts.extend(attribute(&node.target)),
        Node::Stmt(Stmt::SetBlock(node)) => texts.extend(attribute(&node.target)),
        Node::Expr(Expr::Call(node)) if matches!(node.expr, Expr::Var(_)) => {
            texts.extend(node.args.iter().filter_map(|argument| match argument {
                CallArg::Kwarg(name, _) => Some(*name),
                _ => None,
            }));
        }
        _ => {}
    });
    let mut audit = Audit {
        texts,
        needles: Vec::new(),
        uses: TextUses::default(),
        shows_ends: false,
        is_safe: true,
    };
    walk(template, &mut |node| {
        let safe = match node {
            Node::Stmt(statement) => audit.statement(statement),
            Node::Expr(expr) => audit.expr(expr),
        };
        audit.is_safe &= safe.is_some();
    });
    if !audit.is_safe {
        return None;
    }
    let mut uses = audit.uses;
    // One that is searched for may lie across a text's end.
    uses.starts.extend(audit.needles.iter().cloned());
    uses.ends.extend(audit.needles.iter().cloned());
    for texts in [&mut uses.starts, &mut uses.ends, &mut uses.equals] {
        texts.sort_unstable();
        texts.dedup();
        texts.retain(|text| !text.is_empty());
    }
    let uses = (!audit.shows_ends).then_some(uses);
    Some(Audited { needles: Needles::new(audit.needles)?, uses })
}

fn attribute<'s>(target: &Expr<'s>) -> Option<&'s str> {
    if let Expr::GetAttr(target) = target { Some(target.name) } else { None }
}

struct Audit<'s> {
    /// Attributes that may be texts.
    texts: Vec<&'s str>,
    needles: Vec<String>,
    uses: TextUses,
    /// A character at a text's end may be shown, or one text be compared with another.
    shows_ends: bool,
    is_safe: bool,
}

fn is_named_list(target: &Expr<'_>) -> bool {
    match target {
        Expr::Var(var) => LISTS.contains(&var.id),
        Expr::List(node) => node.items.iter().any(is_named_list),
        Expr::Tuple(node) => node.items.iter().any(is_named_list),
        _ => false,
    }
}

impl Audit<'_> {
    fn statement(&mut self, statement: &Stmt<'_>) -> Option<()> {
        // Names that mean lists must go on meaning them.
        let safe = match statement {
            Stmt::ForLoop(node) => {
                self.shows_ends |= !self.is_certain_list(&node.iter);
                self.is_list(&node.iter) && !is_named_list(&node.target) && !node.recursive
            }
            Stmt::Set(node) => !is_named_list(&node.target) || self.is_list(&node.expr),
            Stmt::SetBlock(node) => !is_named_list(&node.target),
            Stmt::WithBlock(node) => !node.assignments.iter().any(|(name, _)| is_named_list(name)),
            Stmt::Macro(node) => !node.args.iter().any(is_named_list),
            Stmt::CallBlock(node) => !node.macro_decl.args.iter().any(is_named_list),
            Stmt::AutoEscape(_) => false,
            _ => true,
        };
        safe.then_some(())
    }

    fn expr(&mut self, expr: &Expr<'_>) -> Option<()> {
        match expr {
            Expr::BinOp(node) => self.operator(node.op, &node.left, &node.right),
            Expr::Compare(node) => {
                let mut left = &node.expr;
                for step in &node.ops {
                    self.operator(operator_of(step.op), left, &step.expr)?;
                    left = &step.expr;
                }
                Some(())
            }
            // A slice of a slice could come to the mark.
            Expr::Slice(node) => self.is_list(&node.expr).then_some(()),
            Expr::GetItem(node) => self.item(node),
            Expr::Filter(node) => self.filter(node),
            Expr::Test(node) => self.test(node),
            Expr::Call(node) => self.call(node),
            // What a text is called inside is not followed.
            Expr::Map(node) => node
                .keys
                .iter()
                .chain(&node.values)
                .all(|expr| constant(expr).is_some())
                .then_some(()),
            _ => Some(()),
        }
    }

    fn operator(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Option<()> {
        match op {
            BinOpKind::Eq | BinOpKind::Ne => {
                if self.compared(left) | self.compared(right) {
                    return Some(());
                }
                // What is compared with a role may be a text that was one before.
                self.shows_ends |= !(is_truth(left) && is_truth(right));
                // Where something else was given that name it may be a text.
                let is_open =
                    |side| is_no_text(side) && (is_truth(side) || !self.texts.contains(&"role"));
                (is_open(left) || is_open(right)).then_some(())
            }
            BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => {
                (is_number(left) || is_number(right)).then_some(())
            }
            BinOpKind::In => match constant(left) {
                Some(needle) if needle.as_str().is_some() => self.needle(&needle),
                Some(_) => None,
                None => {
                    let is_list = constant(right).is_some_and(|list| list.try_iter().is_ok());
                    (is_list && self.compared(right)).then_some(())
                }
            },
            // Sums and negations of texts fail, whatever they hold; a product repeats its marks, too.
            _ => Some(()),
        }
    }

    /// A constant that is looked for in what may be a text.
    fn needle(&mut self, needle: &Value) -> Option<()> {
        match needle.as_str() {
            // A mark is a number: a part of it must not be found, nor nothing at all.
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => None,
            Some(text) if text.len() > MAX_COMPARED => None,
            Some(text) => {
                self.needles.push(text.to_owned());
                Some(())
            }
            None => Some(()),
        }
    }

    fn call(&mut self, call: &Call<'_>) -> Option<()> {
        let Expr::GetAttr(method) = &call.expr else {
            // A function or a macro.
            return matches!(call.expr, Expr::Var(_)).then_some(());
        };
        let first = call.args.first().map(argument_value);
        match method.name {
            "strip" | "lstrip" | "rstrip" => self.strips(&call.args),
            "split" | "replace" => match call.args.first()? {
                CallArg::Pos(needle) => {
                    self.needle(&constant(needle).filter(|needle| needle.as_str().is_some())?)
                }
                _ => None,
            },
            "startswith" => short_texts(first?).map(|texts| self.uses.starts.extend(texts)),
            "endswith" => short_texts(first?).map(|texts| self.uses.ends.extend(texts)),
            // Remembers what it was last given.
            "changed" => None,
            "get" | "items" | "keys" | "values" => Some(()),
            // The rest fails on marked texts when it is called, but may be called on a list of them.
            _ => {
                self.shows_ends = true;
                Some(())
            }
        }
    }

    /// A list that holds no characters of a text, as far as is known.
    fn is_list(&self, expr: &Expr<'_>) -> bool {
        is_list_of(expr, &|field| !self.texts.contains(&field))
    }

    /// The same for certain: only those fields that are lists of messages' parts or calls.
    fn is_certain_list(&self, expr: &Expr<'_>) -> bool {
        is_list_of(expr, &|field| {
            matches!(field, "content" | "tool_calls") && !self.texts.contains(&field)
        })
    }

    fn item(&mut self, node: &GetItem<'_>) -> Option<()> {
        if constant(&node.subscript_expr).is_some_and(|key| key.as_str().is_some()) {
            return Some(());
        }
        // Only of what is a list for certain, by what is a number for certain: what was split is one, of texts that nothing
        // was split off.
        let is_index = is_near(&node.subscript_expr) || is_number(&node.subscript_expr);
        let is_list = self.is_certain_list(&node.expr) || is_split(&node.expr);
        let is_certain = is_index && is_list;
        self.shows_ends |= !is_certain;
        (is_near(&node.subscript_expr) || self.is_list(&node.expr)).then_some(())
    }

    /// Whether this is a constant that a text may be compared with.
    fn compared(&mut self, expr: &Expr<'_>) -> bool {
        let texts = short_texts(expr);
        let is_constant = texts.is_some();
        self.uses.equals.extend(texts.into_iter().flatten());
        is_constant
    }

    fn test(&mut self, node: &Test<'_>) -> Option<()> {
        if matches!(node.name, "lt" | "le" | "gt" | "ge") {
            return None;
        }
        let all = node.args.iter().all(|argument| self.compared(argument_value(argument)));
        all.then_some(())
    }

    /// Stripping ends at the first letter or digit, or earlier.
    fn strips(&mut self, args: &[CallArg<'_>]) -> Option<()> {
        let stripped = self.uses.stripped.get_or_insert_default();
        for argument in args {
            let chars = constant(argument_value(argument))?;
            let chars = chars.as_str()?;
            let kept = |c: char| c.is_ascii_alphanumeric() || c == MARK;
            if chars.chars().any(kept) {
                return None;
            }
            stripped.push_str(chars);
        }
        Some(())
    }

    fn filter(&mut self, node: &Filter<'_>) -> Option<()> {
        let is_bare = node.args.is_empty();
        let safe = match node.name {
            "trim" => return self.strips(&node.args),
            "d" | "default" | "items" | "safe" | "string" => true,
            // These fail on a marked text when they run.
            "count" | "length" | "tojson" => true,
            "first" | "join" | "last" => {
                self.shows_ends |=
                    !node.expr.as_ref().is_some_and(|list| self.is_certain_list(list));
                true
            }
            "dictsort" => is_bare,
            "rejectattr" | "selectattr" => {
                let mut compares = true;
                for argument in &node.args {
                    let argument = argument_value(argument);
                    compares &= self.compared(argument);
                    // A path into a text, or an order of texts.
                    let word = constant(argument);
                    let word = word.as_ref().and_then(|word| word.as_str()).unwrap_or_default();
                    let orders = ["<", "<=", ">", ">=", "lt", "le", "gt", "ge"].contains(&word);
                    self.shows_ends |= orders || word.contains('.');
                    compares &= !orders;
                }
                compares
            }
            "map" => {
                self.shows_ends = true;
                node.args
                    .iter()
                    .all(|argument| matches!(argument, CallArg::Kwarg("attribute" | "default", _)))
            }
            "list" | "reverse" => {
                self.shows_ends |=
                    !node.expr.as_ref().is_some_and(|list| self.is_certain_list(list));
                node.expr.as_ref().is_some_and(|list| self.is_list(list))
            }
            _ => false,
        };
        safe.then_some(())
    }
}
