//! Errors in the shapes that vLLM 0.32 gives them (captured in `tests/fixtures`).

use serde::Serialize;

/// An error answer in OpenAI's shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {message}")]
pub struct ApiError {
    /// HTTP status, repeated in the body as `code`.
    pub status: u16,
    /// `type` in the body.
    pub kind: &'static str,
    /// `message` in the body.
    pub message: String,
    /// `param` in the body.
    pub param: Option<String>,
}

impl ApiError {
    /// An error found by the engine's own checks.
    pub fn bad_request(message: impl Into<String>, param: Option<&str>) -> Self {
        Self {
            status: 400,
            kind: "BadRequestError",
            message: message.into(),
            param: param.map(str::to_owned),
        }
    }

    /// An error found by the request schema: `detail` as FastAPI's validator puts it.
    pub fn validation(detail: &str, param: Option<String>) -> Self {
        Self {
            status: 400,
            kind: "Bad Request",
            message: format!("1 validation error:\n  {detail}"),
            param,
        }
    }

    /// A model that is not served.
    pub fn unknown_model(model: &str, alias: &str) -> Self {
        Self {
            status: 404,
            kind: "NotFoundError",
            message: format!("The model `{model}` does not exist. Valid aliases: {alias}."),
            param: Some("model".to_owned()),
        }
    }

    /// The engine takes no more requests.
    pub fn queue_full() -> Self {
        Self {
            status: 503,
            kind: "Service Unavailable",
            message: "The engine is currently busy and cannot accept new requests. Please try again later or on a \
                      different instance."
                .to_owned(),
            param: None,
        }
    }

    /// The engine process is gone while its HTTP server still answers.
    pub fn engine_dead() -> Self {
        Self {
            status: 500,
            kind: "InternalServerError",
            message: "EngineCore encountered an issue. See stack trace (above) for the root cause."
                .to_owned(),
            param: None,
        }
    }

    /// An answer with a status that a test asked for.
    pub fn on_command(status: u16) -> Self {
        let kind = if status == 503 { "Service Unavailable" } else { "InternalServerError" };
        Self {
            status,
            kind,
            message: "Failure on command of the simulator's operator.".to_owned(),
            param: None,
        }
    }

    /// The JSON body.
    pub fn body(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Inner<'a>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            message: &'a str,
            r#type: &'a str,
            param: Option<&'a str>,
            code: u16,
        }
        let body = Body {
            error: Inner {
                message: &self.message,
                r#type: self.kind,
                param: self.param.as_deref(),
                code: self.status,
            },
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The same as an SSE event inside a stream: Python's `json.dumps` puts blanks after `:` and `,`.
    pub fn sse_event(&self) -> Vec<u8> {
        let text = |value: &str| serde_json::to_string(value).unwrap_or_default();
        let param = self.param.as_deref().map_or_else(|| "null".to_owned(), text);
        format!(
            "data: {{\"error\": {{\"message\": {}, \"type\": {}, \"param\": {param}, \"code\": {}}}}}\n\n",
            text(&self.message),
            text(self.kind),
            self.status
        )
        .into_bytes()
    }
}
