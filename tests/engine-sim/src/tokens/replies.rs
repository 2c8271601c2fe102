//! Answers: deterministic, and canonical, so that encoding their text gives back their ids.
//!
//! Every word is one token that is a leading space and small letters. The split pattern cuts before
//! such a space whatever stands in front of it, so words never merge with a prompt or each other.

/// The tokens that answers are made of.
pub struct Words {
    words: Vec<(u32, Box<str>)>,
}

impl Words {
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Self {
        let mut words: Vec<(u32, Box<str>)> = tokenizer
            .get_vocab(false)
            .into_iter()
            .filter_map(|(token, id)| {
                // `Ġ` is how the byte-level alphabet spells a space.
                let letters = token.strip_prefix('Ġ')?;
                let plain =
                    letters.len() > 1 && letters.bytes().all(|byte| byte.is_ascii_lowercase());
                let text = plain.then(|| format!(" {letters}"))?;
                let encoding = tokenizer.encode_fast(text.as_str(), false).ok()?;
                (encoding.get_ids() == [id]).then(|| (id, text.into_boxed_str()))
            })
            .collect();
        words.sort_unstable_by_key(|(id, _)| *id);
        Self { words }
    }

    /// `len` token ids that depend on `seed` alone.
    pub fn answer(&self, seed: u64, len: usize) -> Vec<u32> {
        let count = self.words.len().max(1) as u64;
        (0..len as u64)
            .filter_map(|i| {
                let pick = usize::try_from(mix(seed.wrapping_add(i)) % count).ok()?;
                self.words.get(pick).map(|(id, _)| *id)
            })
            .collect()
    }

    /// Text of one token of an answer; empty for any other token.
    pub fn text(&self, id: u32) -> &str {
        self.words
            .binary_search_by_key(&id, |(word, _)| *word)
            .ok()
            .and_then(|at| self.words.get(at))
            .map_or("", |(_, text)| text)
    }
}

/// SplitMix64's output function.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::shared;
    use proptest::prelude::*;

    #[test]
    fn answers_are_many_different_words() {
        let tokenizer = shared().unwrap();
        let answer = tokenizer.words().answer(1, 64);
        assert_eq!(answer.len(), 64);
        assert!(answer.iter().collect::<std::collections::BTreeSet<_>>().len() > 32);
        assert_ne!(answer, tokenizer.words().answer(2, 64));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn text_encodes_back_to_the_same_ids_after_any_prompt(prompt in "\\PC{0,20}[ \\n\\t.a]{0,3}", seed: u64, len in 0usize..40) {
            let tokenizer = shared().unwrap();
            let answer = tokenizer.words().answer(seed, len);
            let text: String = answer.iter().map(|&id| tokenizer.words().text(id)).collect();
            prop_assert_eq!(&tokenizer.encode(&[&text]).unwrap()[..], &answer[..]);
            let mut expected = tokenizer.encode(&[&prompt]).unwrap().to_vec();
            expected.extend(&answer);
            prop_assert_eq!(&tokenizer.encode(&[&prompt, &text]).unwrap()[..], &expected[..]);
        }
    }
}
