//! Weighted choices that a conversation keeps.
//!
//! Weighted rendezvous hashing (Schindelhauer and Schomaker): each side gets `-weight / ln(u)`, `u` in (0, 1) from the
//! hash of conversation and side; the highest wins. Sides win in proportion to their weights, and when weights
//! move, only the share that must move changes sides.

use warmroute_shared_state::policy::routing::Split;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Chooses for one request.
pub struct Chooser<'a> {
    /// Identity of the conversation.
    pub conversation: u64,
    /// Any `u64`, another one at each call.
    pub random: &'a mut dyn FnMut() -> u64,
}

impl Chooser<'_> {
    /// Index of one of `sides` (name and weight), by their weights; `None` if all weights are 0. `domain` keeps
    /// choices of different rules apart: who is in the small share of one is not in that of all.
    pub fn choose<'s>(
        &mut self,
        split: Split,
        domain: &str,
        sides: impl Iterator<Item = (&'s str, u32)>,
    ) -> Option<usize> {
        let seed = match split {
            Split::Conversation => xxh3_64_with_seed(domain.as_bytes(), self.conversation),
            Split::Random => (self.random)(),
        };
        let mut best: Option<(f64, usize)> = None;
        for (index, (name, weight)) in sides.enumerate().filter(|(_, (_, weight))| *weight > 0) {
            let score = f64::from(weight) / -unit(xxh3_64_with_seed(name.as_bytes(), seed)).ln();
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, index));
            }
        }
        best.map(|(_, index)| index)
    }
}

/// A number in (0, 1), neither end included.
// 53 bits are exact in f64.
#[allow(clippy::cast_precision_loss)]
fn unit(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(conversation: u64, sides: &[(&str, u32)]) -> Option<usize> {
        let mut random = || 7;
        let mut chooser = Chooser { conversation, random: &mut random };
        chooser.choose(Split::Conversation, "r", sides.iter().copied())
    }

    fn conversations() -> impl Iterator<Item = u64> {
        (0..20_000u64).map(|n| xxh3_64_with_seed(&n.to_le_bytes(), 1))
    }

    crate::tests! {
        fn sides_get_their_shares() {
            for (a, b) in [(90, 10), (70, 30), (1, 1), (1_000_000, 1)] {
                let first = conversations().filter(|c| choose(*c, &[("a", a), ("b", b)]) == Some(0)).count();
                let share = f64::from(a) / f64::from(a + b);
                assert!((first as f64 / 20_000.0 - share).abs() < 0.01, "{a}:{b} {first}");
            }
        }

        fn moving_weights_moves_only_the_share_that_must_move() {
            let side = |c, a, b| choose(c, &[("a", a), ("b", b)]);
            let moved: Vec<_> = conversations().filter(|c| side(*c, 90, 10) != side(*c, 80, 20)).collect();
            assert!((moved.len() as f64 / 20_000.0 - 0.1).abs() < 0.01, "{}", moved.len());
            assert!(moved.iter().all(|c| side(*c, 80, 20) == Some(1)), "nobody moves back");
            // A third side takes from both, and nobody changes between the two.
            let third = |c| choose(c, &[("a", 90), ("b", 10), ("c", 25)]);
            assert!(conversations().all(|c| third(c) == Some(2) || third(c) == side(c, 90, 10)));
        }

        fn rules_do_not_share_their_small_shares() {
            let mut random = || 7;
            let mut both = 0;
            for conversation in conversations() {
                let mut chooser = Chooser { conversation, random: &mut random };
                let sides = [("a", 90), ("b", 10)];
                let small = |chooser: &mut Chooser<'_>, domain| {
                    chooser.choose(Split::Conversation, domain, sides.iter().copied()) == Some(1)
                };
                both += u32::from(small(&mut chooser, "x") && small(&mut chooser, "y"));
            }
            assert!((100..300).contains(&both), "{both}");
        }

        fn chance_is_drawn_anew_and_weight_0_is_never_chosen() {
            let mut n = 0u64;
            let mut random = || { n += 1; xxh3_64_with_seed(&n.to_le_bytes(), 5) };
            let mut chooser = Chooser { conversation: 3, random: &mut random };
            let sides = [("a", 50), ("b", 50), ("c", 0)];
            let mut counts = [0; 3];
            for _ in 0..1000 {
                counts[chooser.choose(Split::Random, "r", sides.iter().copied()).unwrap()] += 1;
            }
            assert!(counts[0] > 400 && counts[1] > 400 && counts[2] == 0, "{counts:?}");
            assert_eq!(choose(1, &[("a", 0)]), None);
            assert_eq!(choose(1, &[]), None);
        }
    }
}
