//! Texts of an exact number of tokens.

use super::{Tokens, WorkloadError};

/// Plain words; their order is random, so two texts share hardly more than their first word.
const WORDS: &str = "\
    account after again answer arrive balance before begin between bill board bring budget \
    carry change check city claim clear client close cost count court cover customer date \
    decide deliver deposit detail early engine enough entry error every expect express field \
    final first follow form freight garden general grant group hand harbour history hold \
    hour house invoice island item keep label language large late letter limit line list \
    local market measure member minute month morning never north notice number offer office \
    open order other owner paper parcel party pay period place plan point policy port \
    present price process produce promise question quick rate reach reason receipt record \
    refund region reply report request result return river road rule school season second \
    send service ship short shop simple small south stamp station stock stone store street \
    summer supply table ticket total town track trade train travel under unit value village \
    voucher wagon warehouse water week weight window winter word yard year a the of";

/// Those words, each with the space before it, that are a single token.
#[must_use]
pub fn one_token_words(tokens: &dyn Tokens) -> Vec<String> {
    let pieces = WORDS.split(' ').map(|word| format!(" {word}"));
    pieces.filter(|piece| tokens.text(piece).len() == 1).collect()
}

/// Writes texts of an exact length from a word list whose token counts it has looked up once.
#[derive(Debug)]
pub struct Writer {
    /// `" word"` and its tokens.
    words: Vec<(String, usize)>,
    filler: String,
}

impl Writer {
    /// Looks up every word.
    ///
    /// # Errors
    /// When no word of the list is a single token, so that lengths could not be made exact.
    pub fn new(tokens: &dyn Tokens) -> Result<Self, WorkloadError> {
        let words: Vec<(String, usize)> = WORDS
            .split(' ')
            .map(|word| {
                let piece = format!(" {word}");
                let count = tokens.text(&piece).len();
                (piece, count)
            })
            .collect();
        let filler = words.iter().find(|(_, count)| *count == 1).map(|(piece, _)| piece.clone());
        let filler = filler.ok_or(WorkloadError::NoExactText(1))?;
        Ok(Self { words, filler })
    }

    /// A text of exactly `length` tokens that opens with `opening`.
    ///
    /// # Errors
    /// When `opening` alone is longer, or the tokenizer merges words so that no length fits.
    pub fn write(
        &self,
        tokens: &dyn Tokens,
        random: &mut fastrand::Rng,
        opening: &str,
        length: usize,
    ) -> Result<String, WorkloadError> {
        let no_text = WorkloadError::NoExactText(length);
        let mut text = opening.to_owned();
        let Some(mut left) = length.checked_sub(tokens.text(&text).len()) else {
            return Err(no_text);
        };
        let mut misses = 0;
        while left > 0 && misses < 64 {
            match random.choice(&self.words) {
                Some((piece, count)) if *count <= left => {
                    text.push_str(piece);
                    left -= count;
                }
                _ => misses += 1,
            }
        }
        for _ in 0..left {
            text.push_str(&self.filler);
        }
        if tokens.text(&text).len() == length { Ok(text) } else { Err(no_text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::conversation::tests::Letters;

    #[test]
    fn texts_have_the_length_asked_for() {
        let writer = Writer::new(&Letters).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for length in [3, 4, 5, 17, 100, 1_000] {
            let text = writer.write(&Letters, &mut random, "no 7", length).unwrap();
            assert_eq!(Letters.text(&text).len(), length, "{text}");
            assert!(text.starts_with("no 7"));
        }
    }

    #[test]
    fn an_opening_that_is_too_long_is_refused() {
        let writer = Writer::new(&Letters).unwrap();
        let refused = writer.write(&Letters, &mut fastrand::Rng::with_seed(1), "one two three", 2);
        assert_eq!(refused, Err(WorkloadError::NoExactText(2)));
    }
}
