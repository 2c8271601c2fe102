//! Answers that the filter gives by itself, in the shape of OpenAI's errors with vLLM's numeric `code`.

use super::error::RequestError;
use serde_json::Value;
use std::borrow::Cow;

/// The header that says why a request was dropped.
pub const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// The value of [`DROPPED_REASON`] when there is nowhere to send a request.
pub const NO_ENDPOINTS: &str = "rejected-no-endpoints";

/// A whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u16,
    /// Headers, `content-type` among them.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// `{"error":{"message","type","param","code"}}`, `code` being the status.
    pub body: Vec<u8>,
}

impl LocalReply {
    /// An error of any status. `message` reaches the client: it must hold no prompt, key or internal address.
    #[must_use]
    pub fn error(status: u16, message: &str, param: Option<&str>) -> Self {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "service_unavailable_error",
            _ => "server_error",
        };
        let text = |text: &str| Value::from(text).to_string();
        let param = param.map_or_else(|| "null".to_owned(), text);
        let body = format!(
            r#"{{"error":{{"message":{},"type":"{kind}","param":{param},"code":{status}}}}}"#,
            text(message),
        );
        Self {
            status,
            headers: vec![("content-type", "application/json".into())],
            body: body.into_bytes(),
        }
    }

    /// An error as OpenAI's SDKs know it by name: `type` and `code` are theirs. `message` as in
    /// [`error`](Self::error).
    #[must_use]
    pub fn named_error(status: u16, message: &str, kind: &str, code: &str) -> Self {
        let body = format!(
            r#"{{"error":{{"message":{},"type":{},"param":null,"code":{}}}}}"#,
            Value::from(message),
            Value::from(kind),
            Value::from(code),
        );
        Self { body: body.into_bytes(), ..Self::error(status, "", None) }
    }

    /// The headers as the host takes them.
    #[must_use]
    pub fn header_pairs(&self) -> Vec<(&'static str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_ref())).collect()
    }

    /// The same with [`DROPPED_REASON`] set.
    #[must_use]
    pub fn dropped(mut self, reason: &'static str) -> Self {
        self.headers.push((DROPPED_REASON, reason.into()));
        self
    }

    /// Why it says that the request was dropped, if it does.
    #[must_use]
    pub fn dropped_reason(&self) -> Option<&'static str> {
        self.headers.iter().find_map(|(name, value)| match value {
            Cow::Borrowed(reason) if *name == DROPPED_REASON => Some(*reason),
            _ => None,
        })
    }

    /// 413: the body is longer than `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        let message =
            format!("The body of your request is too large: at most {limit} bytes are accepted.");
        Self::error(413, &message, None)
    }

    /// 415: the body is compressed. `encoding` is the client's `content-encoding`.
    #[must_use]
    pub fn compressed(encoding: &[u8]) -> Self {
        // It goes back to whoever sent it, but short and printable.
        let name: String = encoding
            .iter()
            .take(32)
            .map(|&byte| match byte {
                b' '..=b'~' => char::from(byte),
                _ => '?',
            })
            .collect();
        let message = format!(
            "Request bodies with content-encoding '{name}' are not supported: send the body uncompressed."
        );
        Self::error(415, &message, None)
    }

    /// 503: there is no endpoint to send the request to.
    #[must_use]
    pub fn no_endpoint() -> Self {
        Self::error(503, "No endpoint is available to serve the request.", None)
            .dropped(NO_ENDPOINTS)
            .retry_later()
    }

    /// 503: this worker has no memory left for another body.
    #[must_use]
    pub fn busy() -> Self {
        Self::error(503, "Too many large requests are being received at once.", None).retry_later()
    }

    /// The same with `retry-after`: another try in a second may succeed.
    #[must_use]
    pub(crate) fn retry_later(mut self) -> Self {
        self.headers.push(("retry-after", "1".into()));
        self
    }

    /// 500: the filter cannot work as it is configured; `what` tells the operator what to mend.
    #[must_use]
    pub fn misconfigured(what: &str) -> Self {
        Self::error(500, &format!("The gateway is misconfigured: {what}"), None)
    }
}

impl From<&RequestError> for LocalReply {
    fn from(error: &RequestError) -> Self {
        Self::error(error.status(), &error.to_string(), error.param())
    }
}

#[cfg(test)]
mod tests {
    use super::{DROPPED_REASON, LocalReply, NO_ENDPOINTS};
    use crate::json::{JsonError, JsonErrorKind};
    use crate::request::{RequestError, error::MessageFault};
    use serde_json::{Value, json};

    fn error_of(reply: &LocalReply) -> Value {
        assert!(reply.header_pairs().contains(&("content-type", "application/json")));
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(body["error"]["code"], reply.status);
        body["error"].clone()
    }

    crate::tests! {
        fn every_request_error_names_its_field() {
            let json = JsonError { kind: JsonErrorKind::UnexpectedByte, offset: 17 };
            let bad = RequestError::BadMessages { index: Some(3), fault: MessageFault::Content };
            let many = RequestError::TooMany { field: "prompt", limit: 9 };
            for (error, status, param, says) in [
                (RequestError::NotJson(json), 400, json!(null), "at byte 17"),
                (RequestError::NotAnObject, 400, json!(null), "JSON object"),
                (RequestError::MissingModel, 400, json!("model"), "model"),
                (RequestError::MissingMessages, 400, json!("messages"), "at least one"),
                (bad, 400, json!("messages"), "messages[3]"),
                (RequestError::MissingInput { field: "prompt" }, 400, json!("prompt"), "non-empty"),
                (RequestError::BadInput { field: "prompt" }, 400, json!("prompt"), "token ids"),
                (many, 400, json!("prompt"), "at most 9"),
                (RequestError::TooLarge, 413, json!(null), "too large"),
            ] {
                let reply = LocalReply::from(&error);
                assert_eq!(reply.status, status);
                let body = error_of(&reply);
                assert_eq!(body["type"], "invalid_request_error");
                assert_eq!(body["param"], param, "{error:?}");
                assert!(body["message"].as_str().unwrap().contains(says), "{body}");
            }
        }

        fn local_errors() {
            let large = LocalReply::too_large(1024);
            assert_eq!((large.status, large.headers.len()), (413, 1));
            assert!(error_of(&large)["message"].as_str().unwrap().contains("1024 bytes"));

            let none = LocalReply::no_endpoint();
            assert_eq!(none.status, 503);
            assert_eq!(error_of(&none)["type"], "service_unavailable_error");
            assert!(none.header_pairs().contains(&(DROPPED_REASON, NO_ENDPOINTS)));
            assert!(none.header_pairs().contains(&("retry-after", "1")));

            let broken = LocalReply::misconfigured("set allow_on_headers_stop_iteration");
            assert_eq!(broken.status, 500);
            assert_eq!(error_of(&broken)["type"], "server_error");
        }

        fn an_encoding_is_named_but_cannot_break_out() {
            let zstd = LocalReply::compressed(b"zstd");
            assert_eq!(zstd.status, 415);
            assert!(error_of(&zstd)["message"].as_str().unwrap().contains("'zstd'"));

            let hostile = [b"\"},\r\n\xff<".as_slice(), &[b'a'; 500]].concat();
            let reply = LocalReply::compressed(&hostile);
            let body = error_of(&reply);
            let message = body["message"].as_str().unwrap();
            assert!(message.contains("'\"},???<aaa"), "{message}");
            assert!(message.len() < 200);
        }
    }
}
