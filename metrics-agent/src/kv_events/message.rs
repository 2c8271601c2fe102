//! The frames of a message: a topic, a number, and a payload.

use bytes::Bytes;

/// The model in a topic `kv@<pod>@<model>`. A name with `@` in it is not found this way.
#[must_use]
pub fn topic_model(topic: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(topic).ok()?.split('@');
    let (Some(_), Some(_), Some(model), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    (!model.is_empty()).then_some(model)
}

/// A message, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// As it came; `None` where the layout has none.
    pub topic: Option<Bytes>,
    /// Its number.
    pub seq: u64,
    /// The batch.
    pub payload: Bytes,
}

impl Numbered {
    /// Of the live stream: topic, number, payload.
    #[must_use]
    pub fn live(frames: &[Bytes]) -> Option<Self> {
        let [topic, seq, payload] = frames else { return None };
        Self::new(Some(topic), seq, payload)
    }

    /// An answer to a replay: the same after an empty frame; vLLM up to 0.16 leaves out the topic.
    #[must_use]
    pub fn replayed(frames: &[Bytes]) -> Option<Self> {
        match frames {
            [_, topic, seq, payload] => Self::new(Some(topic), seq, payload),
            [topic, seq, payload] => {
                Self::new(Some(topic).filter(|topic| !topic.is_empty()), seq, payload)
            }
            _ => None,
        }
    }

    fn new(topic: Option<&Bytes>, seq: &Bytes, payload: &Bytes) -> Option<Self> {
        let seq = u64::from_be_bytes(*seq.first_chunk().filter(|_| seq.len() == 8)?);
        Some(Self { topic: topic.cloned(), seq, payload: payload.clone() })
    }

    /// Whether it marks a replay's end.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.seq == u64::MAX && self.payload.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_three_parts_names_the_model() {
        for (topic, model) in [
            ("kv@10.0.0.1:8000@Qwen/Qwen3-8B", Some("Qwen/Qwen3-8B")),
            ("kv@pod@", None),
            ("kv@pod", None),
            ("kv@pod@a@b", None),
            ("", None),
        ] {
            assert_eq!(topic_model(topic.as_bytes()), model, "{topic}");
        }
        assert_eq!(topic_model(b"kv@pod@\xff"), None);
    }

    #[test]
    fn live_messages_and_both_layouts_of_replays_are_read() {
        let frame = |bytes: &'static [u8]| Bytes::from_static(bytes);
        let (topic, seq, payload) = (frame(b"kv@"), frame(&[0, 0, 0, 0, 0, 0, 0, 7]), frame(b"x"));
        let empty = frame(b"");
        let with = |topic: Option<&Bytes>| {
            Some(Numbered { topic: topic.cloned(), seq: 7, payload: payload.clone() })
        };
        let live = [topic.clone(), seq.clone(), payload.clone()];
        assert_eq!(Numbered::live(&live), with(Some(&topic)));
        let untitled = [empty.clone(), seq.clone(), payload.clone()];
        assert_eq!(Numbered::live(&untitled), with(Some(&empty)));
        assert_eq!(Numbered::replayed(&untitled), with(None));
        for topic in [&topic, &empty] {
            let answer = [empty.clone(), topic.clone(), seq.clone(), payload.clone()];
            assert_eq!(Numbered::replayed(&answer), with(Some(topic)));
            assert_eq!(Numbered::live(&answer), None);
        }
        let bad = [topic, frame(b"seven"), payload.clone()];
        assert_eq!((Numbered::live(&bad), Numbered::replayed(&bad)), (None, None));
        for frames in [&[seq, payload][..], &[]] {
            assert_eq!((Numbered::live(frames), Numbered::replayed(frames)), (None, None));
        }
        let last = frame(&[0xff; 8]);
        for end in [
            vec![empty.clone(), empty.clone(), last.clone(), empty.clone()],
            vec![empty.clone(), last, empty],
        ] {
            assert!(Numbered::replayed(&end).unwrap().is_end());
        }
        assert!(!Numbered::replayed(&untitled).unwrap().is_end());
    }
}
