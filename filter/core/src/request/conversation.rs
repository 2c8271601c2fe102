//! What every turn of a conversation has in common.

use super::anthropic::BILLING_HEADER;
use super::facts::{Content, MediaKind, Message, Part, Prompt, RequestFacts};
use super::path::PathClass;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a prompt that stand for its beginning, where there are no messages.
const PROMPT_BYTES: usize = 256;

/// Never in UTF-8: ends a text, and starts a media's kind.
const END: u8 = 0xff;

impl RequestFacts {
    /// A key that all turns of a conversation share: the hash of the system text (`system`, `instructions`, the
    /// messages of role `system` or `developer` before all others) and of the first user message, white space and all.
    /// How a text is cut into parts does not matter. Without a user message, the first message that is none of the
    /// system's counts. Of a prompt without messages, the first 256 bytes.
    ///
    /// It says nothing of contents that were not kept ([`is_digested`](Self::is_digested)).
    ///
    /// A Responses request that names a `previous_response_id` tells only its own turn: its key is that turn's.
    #[must_use]
    pub fn conversation_key(&self) -> u64 {
        let mut hash = Xxh3::new();
        match self.path {
            PathClass::Chat
            | PathClass::Messages
            | PathClass::CountTokens
            | PathClass::Responses
            | PathClass::Conversations => self.opening(&mut hash),
            _ => {
                if let Some(Prompt::Text(span) | Prompt::Tokens(span)) = self.prompts().first() {
                    let bytes = self.bytes(*span);
                    hash.update(bytes.get(..PROMPT_BYTES).unwrap_or(bytes));
                }
            }
        }
        hash.digest()
    }

    fn opening(&self, hash: &mut Xxh3) {
        self.hash_content(self.system, hash);
        let is_system =
            |message: &&Message| matches!(self.role(message), Some(b"system" | b"developer"));
        let messages = self.messages();
        for message in messages.iter().take_while(is_system) {
            self.hash_content(message.content, hash);
        }
        hash.update(&[END]);
        let user = messages.iter().find(|message| self.role(message) == Some(b"user"));
        let first = user.or_else(|| messages.iter().find(|message| !is_system(message)));
        match (first, self.input) {
            (Some(message), _) => self.hash_content(message.content, hash),
            (None, input) => self.hash_content(input, hash),
        }
    }

    fn role(&self, message: &Message) -> Option<&[u8]> {
        message.role.map(|role| self.bytes(role))
    }

    fn hash_content(&self, content: Content, hash: &mut Xxh3) {
        if let Content::Text(text) = content {
            hash.update(self.bytes(text));
        }
        self.hash_parts(self.parts(content), hash);
    }

    fn hash_parts(&self, parts: &[Part], hash: &mut Xxh3) {
        for part in parts {
            match *part {
                Part::Text(text) if self.bytes(text).starts_with(BILLING_HEADER.as_bytes()) => {}
                Part::Text(text) => hash.update(self.bytes(text)),
                Part::Media { kind, content, .. } => {
                    let kind = match kind {
                        MediaKind::Image => 1,
                        MediaKind::Video => 2,
                        MediaKind::Audio => 3,
                    };
                    hash.update(&[END, kind]);
                    hash.update(self.bytes(content));
                    hash.update(&[END]);
                }
                Part::ToolResult { content, .. } => {
                    if let Content::Text(text) = content {
                        hash.update(self.bytes(text));
                    }
                    self.hash_parts(self.result_parts(content), hash);
                }
                _ => {}
            }
        }
    }
}
