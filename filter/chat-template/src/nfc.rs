//! Unicode's canonical composition, which some tokenizers (Qwen's) apply before they cut a text into tokens.

use std::borrow::Cow;
use unicode_normalization::char::{canonical_combining_class, compose, decompose_canonical};
use unicode_normalization::{IsNormalized, is_nfc_quick};

/// `text` in normalisation form C. Text that is in it already, as nearly all is, is not copied; bytes that are no
/// UTF-8 come back as they are.
///
/// A prompt's special tokens need no care: none ends in a character that composes with what may follow.
#[must_use]
pub fn normalize_nfc(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let Ok(text) = core::str::from_utf8(text) else { return Cow::Borrowed(text) };
    if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut composer = Composer { out: String::with_capacity(text.len()), ..Composer::default() };
    for character in text.chars() {
        decompose_canonical(character, |part| composer.push(part));
    }
    composer.flush();
    Cow::Owned(composer.out.into_bytes())
}

/// Composes decomposed characters (Unicode Standard Annex 15). The crate's own iterator does the same, but brings the
/// tables of compatible decompositions, which nobody wants here, into the module.
#[derive(Default)]
struct Composer {
    out: String,
    /// The last character that others combine with.
    starter: Option<char>,
    /// What came after it, with combining classes.
    marks: Vec<(u8, char)>,
}

impl Composer {
    fn push(&mut self, character: char) {
        let class = canonical_combining_class(character);
        if class != 0 {
            self.marks.push((class, character));
            return;
        }
        self.combine();
        match self.starter {
            // Nothing stands between the two.
            Some(starter) if self.marks.is_empty() => match compose(starter, character) {
                Some(composed) => self.starter = Some(composed),
                None => {
                    self.out.push(starter);
                    self.starter = Some(character);
                }
            },
            _ => {
                self.write();
                self.starter = Some(character);
            }
        }
    }

    fn flush(&mut self) {
        self.combine();
        self.write();
    }

    /// Brings the marks into order and combines those that nothing keeps from the starter.
    fn combine(&mut self) {
        self.marks.sort_by_key(|(class, _)| *class);
        let Some(mut starter) = self.starter else { return };
        let mut last = 0;
        self.marks.retain(|(class, mark)| {
            // A mark of the same class that stayed is in the way.
            let composed = if last < *class { compose(starter, *mark) } else { None };
            match composed {
                Some(composed) => starter = composed,
                None => last = *class,
            }
            composed.is_none()
        });
        self.starter = Some(starter);
    }

    fn write(&mut self) {
        self.out.extend(self.starter.take());
        self.out.extend(self.marks.drain(..).map(|(_, mark)| mark));
    }
}

#[cfg(test)]
mod tests {
    use super::normalize_nfc;
    use proptest::prelude::*;
    use std::borrow::Cow;

    /// Python 3.11: `unicodedata.normalize("NFC", text)`.
    #[test]
    fn composes_as_python_does() {
        for (text, expected) in [
            ("plain", "plain"),
            ("Cafe\u{301} e\u{301}tang", "Café étang"),
            ("A\u{30a}ngstro\u{308}m \u{212b} \u{2126}", "Ångström Å Ω"),
            ("\u{1100}\u{1161}\u{11a8}", "각"),
            (
                "a\u{323}\u{302} q\u{307}\u{323} \u{344} \u{f900}",
                "ậ q\u{323}\u{307} \u{308}\u{301} 豈",
            ),
            ("\u{301}start", "\u{301}start"),
        ] {
            assert_eq!(normalize_nfc(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_needs_nothing_is_not_copied() {
        for text in ["ascii only".as_bytes(), "déjà vu 日本 😀".as_bytes(), &[0xff, 0xfe], b""]
        {
            assert!(matches!(normalize_nfc(text), Cow::Borrowed(same) if same == text));
        }
    }

    proptest! {
        #[test]
        fn composes_as_the_crate_does(text in "[ae\u{1100}-\u{1115}\u{1161}-\u{1175}\u{11a8}-\u{11c2}\u{300}-\u{345}\u{1e00}-\u{1eff}\u{ac00}-\u{ac40}\u{f900}-\u{f910}\u{93c}\u{915}-\u{930}]{0,40}|\\PC{0,40}") {
            let expected: String = unicode_normalization::UnicodeNormalization::nfc(text.as_str()).collect();
            prop_assert_eq!(normalize_nfc(text.as_bytes()), expected.as_bytes());
        }

        #[test]
        fn normalising_twice_changes_nothing(text in any::<String>()) {
            let once = normalize_nfc(text.as_bytes());
            let twice = normalize_nfc(&once);
            prop_assert_eq!(&once, &twice);
        }
    }
}
