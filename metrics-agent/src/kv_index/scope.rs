//! What keeps blocks of equal tokens apart: adapter, salt, and anything else.

use crate::kv_events::event::{ExtraKey, Stored};

/// What an event's first block says of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Salt<'a> {
    /// None.
    None,
    /// This one.
    Text(&'a str),
    /// Something else lies over the block: its bytes are no prompt's.
    Unknown,
}

/// The salt of the block at `position`, which is the first of a prompt.
pub(super) fn salt(stored: &Stored, position: usize) -> Salt<'_> {
    let mut salt = Salt::None;
    for key in others(stored, position) {
        salt = match (key, salt) {
            (ExtraKey::Text(text), Salt::None) => Salt::Text(text),
            _ => Salt::Unknown,
        };
    }
    salt
}

/// Whether the block at `position`, which is not the first of its prompt, is what its tokens say.
pub(super) fn is_plain(stored: &Stored, position: usize) -> bool {
    others(stored, position).next().is_none()
}

/// Extra keys other than the adapter's name, which engines give once on every block of it.
fn others(stored: &Stored, position: usize) -> impl Iterator<Item = &ExtraKey> {
    let mut adapter = stored.adapter.as_deref();
    stored.extra_keys.get(position).into_iter().flatten().filter(move |key| match (key, adapter) {
        (ExtraKey::Text(text), Some(name)) if text == name => {
            adapter = None;
            false
        }
        _ => true,
    })
}
