//! Which conversation a request belongs to.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Headers by which clients name their session, most specific first.
const SESSION_HEADERS: [&str; 5] =
    ["x-session-id", "x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"];

/// Identity of the conversation: by a session header if there is one, else by `opening`, the hash of what every
/// turn begins with (system text and first user message). Equal openings of different tenants are different
/// conversations.
#[must_use]
pub fn conversation_of<'a>(
    tenant: &str,
    header: &dyn Fn(&str) -> Option<&'a str>,
    opening: impl FnOnce() -> u64,
) -> u64 {
    let session = SESSION_HEADERS.iter().find_map(|name| header(name).filter(|v| !v.is_empty()));
    let seed = match session {
        Some(session) => xxh3_64_with_seed(session.as_bytes(), 1),
        None => opening(),
    };
    xxh3_64_with_seed(tenant.as_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_session_header_beats_the_text_and_tenants_are_apart() {
            let none = |_: &str| None;
            let session = |name: &str| (name == "x-session-id").then_some("s1");
            assert_eq!(conversation_of("t", &session, || 1), conversation_of("t", &session, || 2));
            let behind = |name: &str| match name {
                "x-session-id" => Some(""),
                "session-id" => Some("s1"),
                _ => None,
            };
            assert_eq!(conversation_of("t", &behind, || 1), conversation_of("t", &session, || 2), "an empty one says nothing");
            assert_ne!(conversation_of("t", &none, || 1), conversation_of("t", &none, || 2));
            assert_ne!(conversation_of("t", &none, || 1), conversation_of("u", &none, || 1));
        }
    }
}
