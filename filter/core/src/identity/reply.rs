//! What nobody is told.

use super::index::Unknown;
use crate::request::LocalReply;

impl From<Unknown> for LocalReply {
    /// 401 as OpenAI gives it, but without any part of the key in it.
    fn from(unknown: Unknown) -> Self {
        let message = match unknown {
            Unknown::Missing => {
                "You didn't provide an API key. Send it in the header `Authorization: Bearer YOUR_KEY`."
            }
            Unknown::Wrong => "Incorrect API key provided.",
        };
        let mut reply = Self::named_error(401, message, "invalid_request_error", "invalid_api_key");
        reply.headers.push(("www-authenticate", "Bearer".into()));
        reply
    }
}
