//! `List`: objects in one document, as `kubectl get -o yaml` prints them.
//!
//! The items are cut out of the text, so that each is read like a document of its own, with its lines.

use super::document::Document;
use super::error::{Issue, Problem};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Objects of a list at most.
const MAX_ITEMS: usize = 4096;

/// An item: lines of the file before it, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Lines of the file before it.
    pub line_offset: u64,
    /// Its text, moved to the left margin.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(default)]
    items: Option<Vec<IgnoredAny>>,
}

/// The items of a list.
///
/// # Errors
/// If it is none, or not written as a block of lines.
pub fn items(document: &Document<'_>) -> Result<Vec<Item>, Issue> {
    let expected = document.parse::<Raw>()?.items.unwrap_or_default().len();
    if expected > MAX_ITEMS {
        return Err(document.issue(1, Problem::TooMany { what: "items", limit: MAX_ITEMS }));
    }
    let items = if expected == 0 || document.one_line { Vec::new() } else { cut(document) };
    if items.len() == expected {
        return Ok(items);
    }
    let what = "a list whose items are not written as `- ` blocks".to_owned();
    let instead = "give each object as a document of its own, after a line `---`";
    Err(document.issue(1, Problem::Unsupported { what, instead }))
}

fn cut(document: &Document<'_>) -> Vec<Item> {
    let lines = (0u64..).zip(document.text.lines());
    let rest = lines.skip_while(|(_, line)| !line.starts_with("items:")).skip(1);
    let mut items: Vec<Item> = Vec::new();
    // Where the dash of an item stands, and where its text begins.
    let mut columns = None;
    for (number, line) in rest {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let blank = line.trim().is_empty() || line.trim_start().starts_with('#');
        let (dash, start) = match columns {
            Some(columns) => columns,
            None if blank => continue,
            None => {
                let after = line.get(indent..).and_then(|text| text.strip_prefix('-'));
                let Some(after) = after else { break };
                let start = indent + 1 + (after.len() - after.trim_start_matches(' ').len());
                *columns.insert((indent, start))
            }
        };
        let begins = indent == dash && line.get(dash..).is_some_and(|text| text.starts_with("- "));
        if begins {
            items.push(Item { line_offset: document.line_offset + number, text: String::new() });
        } else if indent <= dash && !blank {
            break;
        }
        if let Some(item) = items.last_mut() {
            item.text.push_str(line.get(start..).unwrap_or(line.trim_start()));
            item.text.push('\n');
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn cut_up(text: &str) -> Result<Vec<(u64, String)>, String> {
        items(&Document::new(Path::new("l.yaml"), 10, text))
            .map(|items| items.into_iter().map(|item| (item.line_offset, item.text)).collect())
            .map_err(|issue| issue.to_string())
    }

    #[test]
    fn items_keep_their_lines() {
        let text = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: A\n  data:\n    x: |\n      - y\n\n      z\n\
                    # remark\n- kind: B\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
        let first = "apiVersion: v1\nkind: A\ndata:\n  x: |\n    - y\n\n    z\n";
        let found = cut_up(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, 12);
        assert!(found[0].1.starts_with(first), "{}", found[0].1);
        assert_eq!(found[1], (20, "kind: B\n".to_owned()));
        let indented =
            "apiVersion: v1\nkind: List\nitems:\n  -   kind: A\n      x: y\n  -   kind: B\n";
        let found = cut_up(indented).unwrap();
        assert_eq!(found, [(13, "kind: A\nx: y\n".to_owned()), (15, "kind: B\n".to_owned())]);
        assert_eq!(cut_up("apiVersion: v1\nkind: List\nitems: []\n").unwrap(), []);
        assert_eq!(cut_up("apiVersion: v1\nkind: List\n").unwrap(), []);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let flow = "apiVersion: v1\nkind: List\nitems: [{kind: A}]\n";
        assert!(cut_up(flow).unwrap_err().contains("not written as `- ` blocks"));
        let unknown = "apiVersion: v1\nkind: List\nitem: []\n";
        assert!(cut_up(unknown).unwrap_err().contains("did you mean `items`?"));
    }
}
