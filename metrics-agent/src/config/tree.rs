//! YAML of no fixed shape, with the line of every value: what a plugin's type reads from it, and where the part is
//! that it refuses.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A value with its line in the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    line: u64,
    node: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Leaf(Value),
    List(Vec<Tree>),
    /// Keys with their lines.
    Map(Vec<(String, u64, Tree)>),
}

impl Tree {
    /// Line of the document that it begins at.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.node {
            Node::Leaf(value) => value.clone(),
            Node::List(list) => Value::Array(list.iter().map(Self::to_json).collect()),
            Node::Map(map) => {
                let entries = map.iter().map(|(key, _, tree)| (key.clone(), tree.to_json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    /// Line of the part at `path`, like `conditions[0].metric`, or of the deepest part of it that there is.
    #[must_use]
    pub fn line_of(&self, path: &str) -> u64 {
        match &self.node {
            Node::Leaf(_) => self.line,
            Node::List(list) => {
                let inside = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let found = inside.and_then(|(index, rest)| {
                    let tree = list.get(index.parse::<usize>().ok()?)?;
                    Some(tree.line_of(rest.strip_prefix('.').unwrap_or(rest)))
                });
                found.unwrap_or(self.line)
            }
            Node::Map(map) => {
                // Keys may have dots in them: the longest one that the path begins with.
                let key = map.iter().filter_map(|(key, line, tree)| {
                    let rest = path.strip_prefix(key.as_str())?;
                    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                    ends.then_some((key.len(), *line, tree, rest))
                });
                match key.max_by_key(|(len, ..)| *len) {
                    Some((_, line, _, "")) => line,
                    Some((_, _, tree, rest)) => {
                        tree.line_of(rest.strip_prefix('.').unwrap_or(rest))
                    }
                    None => self.line,
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self { line: node.referenced.line(), node: node.value })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).map(Value::Number);
        Ok(Node::Leaf(number.unwrap_or_else(|| Value::String(value.to_string()))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(tree) = seq.next_element()? {
            list.push(tree);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = key.referenced.line();
            entries.push((key.value, line, map.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "a: 1\nlist:\n- x: true\n  y: -2.5\n- text\n- null\nempty: {}\nb.c:\n  d: '3'\n  e:\n  - - f\n";

    #[test]
    fn it_is_the_json_of_the_yaml() {
        let tree: Tree = serde_saphyr::from_str(TEXT).unwrap();
        let expected = json!({
            "a": 1, "list": [{"x": true, "y": -2.5}, "text", null], "empty": {},
            "b.c": {"d": "3", "e": [["f"]]},
        });
        assert_eq!(tree.to_json(), expected);
        let large: Tree = serde_saphyr::from_str("[18446744073709551615]").unwrap();
        assert_eq!(large.to_json(), json!([u64::MAX]));
    }

    #[test]
    fn every_part_has_its_line() {
        let tree: Tree = serde_saphyr::from_str(TEXT).unwrap();
        let cases = [
            ("a", 1),
            ("list", 2),
            ("list[0]", 3),
            ("list[0].x", 3),
            ("list[0].y", 4),
            ("list[0].z", 3),
            ("list[1]", 5),
            ("list[7].x", 3),
            ("list[x]", 3),
            ("b.c", 8),
            ("b.c.d", 9),
            ("b.c.e[0][0]", 11),
            ("none", 1),
            ("", 1),
        ];
        for (path, line) in cases {
            assert_eq!(tree.line_of(path), line, "{path}");
        }
    }
}
