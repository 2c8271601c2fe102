//! Messages for the applier, several at once: to wake its thread costs more than what most of them say.

use warmroute_shared_state::wire::Reader;

/// Between two parcels, unless something is urgent. As long as the applier's own tick: sooner, nobody would hear of it.
const PAUSE_MS: u64 = 5;

/// A parcel of so many bytes goes at once.
const FULL_BYTES: usize = 32 << 10;

/// What a VM has for the applier and has not sent yet.
#[derive(Debug, Default)]
pub struct Parcel {
    bytes: Vec<u8>,
    sent_ms: u64,
}

impl Parcel {
    /// Adds a message.
    pub fn add(&mut self, mut message: Vec<u8>) {
        // A message is at most as long as a prompt's chain.
        let Ok(length) = u32::try_from(message.len()) else { return };
        if self.bytes.is_empty() && message.len() >= FULL_BYTES {
            // A long one becomes the parcel: a copy would take as much room again.
            message.splice(0..0, length.to_le_bytes());
            self.bytes = message;
            return;
        }
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(message);
    }

    /// What is to be sent now. The first message after a pause goes at once, those of the next moments together.
    pub fn due(&mut self, urgent: bool, now_ms: u64) -> Option<Vec<u8>> {
        let paused = now_ms.saturating_sub(self.sent_ms) >= PAUSE_MS || now_ms < self.sent_ms;
        let goes = urgent || paused || self.bytes.len() >= FULL_BYTES;
        if self.bytes.is_empty() || !goes {
            return None;
        }
        self.sent_ms = now_ms;
        Some(core::mem::take(&mut self.bytes))
    }

    /// Whether nothing waits here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The messages of a parcel, as far as it is whole.
pub fn messages(parcel: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(parcel);
    core::iter::from_fn(move || {
        let length = reader.u32().ok()?;
        reader.bytes(usize::try_from(length).ok()?).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parcel: Option<Vec<u8>>) -> Vec<String> {
        let parcel = parcel.unwrap_or_default();
        messages(&parcel).map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    }

    crate::tests! {
        fn the_first_goes_at_once_and_those_of_the_next_moments_together() {
            let mut parcel = Parcel::default();
            assert!(parcel.is_empty());
            parcel.add(b"first".to_vec());
            assert_eq!(texts(parcel.due(false, 1_000)), ["first"]);
            parcel.add(b"second".to_vec());
            assert_eq!(parcel.due(false, 1_004), None);
            assert!(!parcel.is_empty());
            parcel.add(b"".to_vec());
            assert_eq!(texts(parcel.due(false, 1_005)), ["second", ""]);
            assert_eq!(parcel.due(false, 2_000), None);
        }

        fn a_long_one_and_what_is_added_to_it_come_back_as_they_were() {
            let long = "x".repeat(FULL_BYTES);
            let mut parcel = Parcel::default();
            parcel.add(long.clone().into_bytes());
            parcel.add(b"second".to_vec());
            parcel.add(long.clone().into_bytes());
            assert_eq!(texts(parcel.due(false, 1_000)), [&long, "second", &long]);
        }

        fn what_is_urgent_or_much_or_after_a_clock_set_back_does_not_wait() {
            for (now, urgent, length) in [(1_001, true, 1), (1_001, false, FULL_BYTES), (900, false, 1)] {
                let mut parcel = Parcel::default();
                parcel.add(b"first".to_vec());
                assert!(parcel.due(false, 1_000).is_some());
                parcel.add(vec![b'x'; length]);
                assert!(parcel.due(urgent, now).is_some(), "{now}");
            }
        }

        fn of_a_cut_parcel_the_whole_messages_are_read() {
            let mut parcel = Parcel::default();
            [&b"one"[..], b"two"].iter().for_each(|message| parcel.add(message.to_vec()));
            let whole = parcel.due(true, 0).unwrap();
            for end in 0..=whole.len() {
                let count = messages(&whole[..end]).count();
                assert_eq!(count, usize::from(end >= 7) + usize::from(end >= 14), "{end}");
            }
        }
    }
}
