//! Texts that a template cannot tell from others: whatever it looks for, compares with or strips, they are just text.
//! [`plans`](crate::plans) is built on that.

use memchr::{memchr_iter, memmem, memrchr_iter};

/// What a template does to texts beyond looking for needles in them. Found by [`audit`](crate::audit).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextUses {
    /// What texts are searched for, split at or asked to begin with.
    pub(crate) starts: Vec<String>,
    /// What they are searched for, split at or asked to end in.
    pub(crate) ends: Vec<String>,
    /// What they are compared with.
    pub(crate) equals: Vec<String>,
    /// Characters besides white space that are stripped off them; `None` if nothing is.
    pub(crate) stripped: Option<String>,
}

/// A plain text, with what may be stripped off it at either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainText<'a> {
    pub(crate) before: &'a [u8],
    pub(crate) text: &'a [u8],
    pub(crate) behind: &'a [u8],
}

/// The most bytes that may be stripped off either end.
const MOST_STRIPPED: usize = 8;

impl TextUses {
    /// What of a text is plain, put between others. It is not said whether a needle lies inside it.
    ///
    /// It begins and ends with what is not stripped. No constant of the template's lies across its ends or has it inside: so
    /// what holds, fails, is found or cut with this text in its place does so with any other plain one. Its first character is
    /// ASCII: whatever comes before it, each can be normalised by itself.
    pub(crate) fn plain_text<'a>(&self, text: &'a [u8]) -> Option<PlainText<'a>> {
        let parts = self.without_ends(text)?;
        let (first, last) = parts.text.first().zip(parts.text.last())?;
        let text = parts.text;
        let stands_alone = first.is_ascii()
            && !self.starts.iter().any(|constant| {
                memchr_iter(*first, constant.as_bytes()).any(|at| {
                    let end = constant.as_bytes().get(at..).unwrap_or_default();
                    text.starts_with(end) || end.starts_with(text)
                })
            })
            && !self.ends.iter().any(|constant| {
                memrchr_iter(*last, constant.as_bytes()).any(|at| {
                    let begin = constant.as_bytes().get(..=at).unwrap_or_default();
                    text.ends_with(begin) || begin.ends_with(text)
                })
            })
            && !self.equals.iter().any(|constant| is_within(text, constant));
        stands_alone.then_some(parts)
    }

    /// Takes off what may be stripped.
    fn without_ends<'a>(&self, text: &'a [u8]) -> Option<PlainText<'a>> {
        let Some(stripped) = &self.stripped else {
            return Some(PlainText { before: &[], text, behind: &[] });
        };
        let stays = |c: char| !crate::methods::is_space(c) && !stripped.contains(c);
        let goes = |byte: &u8| byte.is_ascii() && !stays(char::from(*byte));
        let before = text.iter().take_while(|byte| goes(byte)).count();
        let (before, rest) = text.split_at_checked(before)?;
        let behind = rest.iter().rev().take_while(|byte| goes(byte)).count();
        let (text, behind) = rest.split_at_checked(rest.len().checked_sub(behind)?)?;
        let fits = before.len() <= MOST_STRIPPED && behind.len() <= MOST_STRIPPED;
        (fits && last_character(text).is_some_and(stays)).then_some(PlainText {
            before,
            text,
            behind,
        })
    }
}

/// Whether a text is a part of another.
pub(crate) fn is_within(text: &[u8], other: &str) -> bool {
    text.len() <= other.len() && memmem::find(other.as_bytes(), text).is_some()
}

fn last_character(text: &[u8]) -> Option<char> {
    let from = text.len().saturating_sub(4);
    let begins = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xC0 != 0x80);
    let at = (from..text.len()).rev().find(begins)?;
    core::str::from_utf8(text.get(at..)?).ok()?.chars().next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(stripped: Option<&str>) -> TextUses {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        TextUses {
            starts: list(&["<tool>", "</think>"]),
            ends: list(&["</tool>", "</think>"]),
            equals: list(&["user"]),
            stripped: stripped.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_plain() {
        for text in ["Hi", "words.", "x日", "words =", "users", "a > b", "a <tool> b"] {
            for ends in [("", ""), (" ", "\n\n"), ("-", "\u{1c} "), ("\t", "")] {
                let (before, behind) = (ends.0.as_bytes(), ends.1.as_bytes());
                let whole = [before, text.as_bytes(), behind].concat();
                let parts = PlainText { before, text: text.as_bytes(), behind };
                assert_eq!(uses(Some("-")).plain_text(&whole), Some(parts), "{text}");
                let parts = PlainText { before: &[], text: &whole, behind: &[] };
                assert_eq!(uses(None).plain_text(&whole), Some(parts), "{text}");
            }
        }
    }

    #[test]
    fn what_is_not() {
        for text in [
            // Would complete a constant, or begin one.
            "tool> and so on",
            "> a",
            ">",
            "think>",
            "a <",
            "a </",
            "a </tool",
            "tool",
            "/think",
            "</tool>",
            // Compared with.
            "user",
            "use",
            "s",
            // Could compose with what is before it.
            "日",
            "",
        ] {
            assert_eq!(uses(None).plain_text(text.as_bytes()), None, "{text:?}");
            assert_eq!(uses(Some("")).plain_text(text.as_bytes()), None, "{text:?}");
        }
        // Too much to be told a shape by; stripped, but not ASCII; no UTF-8.
        let broken = [b"a".as_slice(), &"日".as_bytes()[..2]].concat();
        for text in [
            "a         ".as_bytes(),
            " ".as_bytes(),
            "a\u{3000}".as_bytes(),
            "\u{3000}a".as_bytes(),
            &broken,
        ] {
            assert_eq!(uses(Some("-")).plain_text(text), None, "{text:?}");
        }
    }
}
