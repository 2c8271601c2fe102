//! Counts of one endpoint between two looks at them.

use super::sequence::{Cause, Note};
use crate::kv_index::Counters;

/// A family of the agent's metrics. Its label beside `endpoint` has a fixed set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Batches, by what became of them.
    Batches,
    /// Events, by type.
    Events,
    /// What happened on the way from the publisher.
    Stream,
    /// Times that all that was held of a rank became void, by cause.
    Voids,
    /// Engine blocks, by what became of them.
    Blocks,
}

macro_rules! tally {
    ($($(#[$doc:meta])* $field:ident: $family:ident $label:literal,)*) => {
        /// See the module.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Tally { $($(#[$doc])* pub $field: u64,)* }

        impl Tally {
            /// Family and label of every count.
            pub const LABELS: &[(Family, &'static str)] = &[$((Family::$family, $label),)*];

            /// Every count that is not 0, with its family and label.
            pub fn counts(&self) -> impl Iterator<Item = (Family, &'static str, u64)> {
                [$((Family::$family, $label, self.$field),)*]
                    .into_iter()
                    .filter(|(_, _, count)| *count > 0)
            }
        }
    };
}

tally! {
    /// Batches that were read.
    read: Batches "read",
    /// Batches that are none.
    unreadable: Batches "unreadable",
    /// Batches of a model that is not known.
    without_model: Batches "without_model",
    /// Events that blocks were stored.
    stored: Events "stored",
    /// Events that blocks were removed.
    removed: Events "removed",
    /// Events that the cache was cleared.
    cleared: Events "cleared",
    /// Events that could not be read, or of a type that is not known.
    undecodable: Events "undecodable",
    /// Batches that came too early.
    gaps: Stream "gap",
    /// Batches that came again.
    duplicates: Stream "duplicate",
    /// Times that too much waited for a replay.
    overflows: Stream "overflow",
    /// Messages that are no batch with a number.
    malformed: Stream "malformed",
    /// Replays that ended well.
    replays: Stream "replayed",
    /// Replays that ended badly and were tried again.
    retries: Stream "replay_retried",
    /// Publishers of topics that are not wanted.
    foreign_topics: Stream "foreign_topic",
    /// Publishers that could not be reached.
    unreachable: Stream "unreachable",
    /// Times that too many blocks hung on unknown ones.
    incomplete: Stream "incomplete",
    /// See [`Cause::Restarted`].
    void_restarted: Voids "restarted",
    /// See [`Cause::Gap`].
    void_gap: Voids "gap",
    /// See [`Cause::Reconnected`].
    void_reconnected: Voids "reconnected",
    /// See [`Cause::ReplayTooLate`].
    void_too_late: Voids "replay_too_late",
    /// See [`Cause::ReplayHole`].
    void_hole: Voids "replay_hole",
    /// See [`Cause::ReplayFailed`].
    void_failed: Voids "replay_failed",
    /// Blocks stored.
    blocks_stored: Blocks "stored",
    /// Blocks removed.
    blocks_removed: Blocks "removed",
    /// Blocks stored under a parent that is not known.
    blocks_orphaned: Blocks "orphan",
    /// Blocks copied to a slower tier that are not known.
    blocks_unknown_copy: Blocks "unknown_copy",
    /// Blocks not known to be held until something was stored that hangs on them.
    blocks_revived: Blocks "revived",
    /// Blocks removed that were not known.
    blocks_not_known: Blocks "unknown_removal",
    /// Blocks of groups that say nothing of whole prefixes.
    blocks_other_group: Blocks "other_group",
    /// Events whose numbers of tokens and blocks don't fit together.
    blocks_malformed: Blocks "malformed",
    /// Blocks with an id that has no bytes.
    blocks_unknown_id: Blocks "unknown_id",
    /// Blocks with something over them that is no text.
    blocks_opaque: Blocks "opaque_key",
    /// Blocks that may come from decode, and are as text would be encoded.
    blocks_same: Blocks "decoded_same",
    /// The same, and are not.
    blocks_differ: Blocks "decoded_differs",
    /// Blocks beyond what an index holds.
    blocks_over_limit: Blocks "over_limit",
}

impl Tally {
    /// Counts what a sequence noted.
    pub fn note(&mut self, note: Note) {
        bump(match note {
            Note::Gap => &mut self.gaps,
            Note::Duplicate => &mut self.duplicates,
            Note::Overflow => &mut self.overflows,
            Note::Replayed => &mut self.replays,
            Note::Retried => &mut self.retries,
        });
    }

    /// Counts a void.
    pub fn void(&mut self, cause: Cause) {
        bump(match cause {
            Cause::Restarted => &mut self.void_restarted,
            Cause::Gap => &mut self.void_gap,
            Cause::Reconnected => &mut self.void_reconnected,
            Cause::ReplayTooLate => &mut self.void_too_late,
            Cause::ReplayHole => &mut self.void_hole,
            Cause::ReplayFailed => &mut self.void_failed,
        });
    }

    /// Adds what an index counted since it had counted `before`.
    pub fn blocks(&mut self, before: &Counters, now: &Counters) {
        for (count, before, now) in [
            (&mut self.blocks_stored, before.stored, now.stored),
            (&mut self.blocks_removed, before.removed, now.removed),
            (&mut self.blocks_orphaned, before.orphans, now.orphans),
            (&mut self.blocks_unknown_copy, before.unknown_copies, now.unknown_copies),
            (&mut self.blocks_revived, before.revived, now.revived),
            (&mut self.blocks_not_known, before.unknown_removals, now.unknown_removals),
            (&mut self.blocks_other_group, before.other_groups, now.other_groups),
            (&mut self.blocks_malformed, before.malformed, now.malformed),
            (&mut self.blocks_unknown_id, before.unknown_ids, now.unknown_ids),
            (&mut self.blocks_opaque, before.opaque_keys, now.opaque_keys),
            (&mut self.blocks_same, before.checked, now.checked),
            (&mut self.blocks_differ, before.differing, now.differing),
            (&mut self.blocks_over_limit, before.over_limit, now.over_limit),
        ] {
            *count = count.saturating_add(now.saturating_sub(before));
        }
    }
}

/// One more.
pub fn bump(count: &mut u64) {
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_label_of_its_own() {
        let mut labels = Tally::LABELS.to_vec();
        labels.sort_by_key(|(family, label)| (format!("{family:?}"), *label));
        labels.dedup();
        assert_eq!(labels.len(), Tally::LABELS.len());
        let mut tally = Tally::default();
        assert_eq!(tally.counts().count(), 0);
        tally.note(Note::Gap);
        tally.note(Note::Gap);
        tally.void(Cause::Gap);
        let counters = Counters { orphans: 7, ..Counters::default() };
        tally.blocks(&Counters { orphans: 2, ..Counters::default() }, &counters);
        let expected =
            [(Family::Stream, "gap", 2), (Family::Voids, "gap", 1), (Family::Blocks, "orphan", 5)];
        assert_eq!(tally.counts().collect::<Vec<_>>(), expected);
    }
}
