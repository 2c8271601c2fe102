//! Unicode's canonical composition, which some tokenizers (Qwen's) apply before they cut a text into tokens.

use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

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
    Cow::Owned(text.nfc().collect::<String>().into_bytes())
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
        fn normalising_twice_changes_nothing(text in any::<String>()) {
            let once = normalize_nfc(text.as_bytes());
            let twice = normalize_nfc(&once);
            prop_assert_eq!(&once, &twice);
        }
    }
}
