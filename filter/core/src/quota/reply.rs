//! What a client is told of its budget: 429 and 400 in OpenAI's shape, and the `x-ratelimit-*` headers.
//!
//! Source of names and forms: OpenAI's API reference, "Rate limits in headers" and "Error codes".

use super::bucket::Why;
use super::bucket_id::Kind;
use super::buckets::{Level, Refusal};
use crate::request::LocalReply;

/// The answer to a request that its tenant's budget has no room for. `Retry-After` is in seconds, rounded up.
#[must_use]
pub fn refusal_reply(refusal: &Refusal) -> LocalReply {
    let (kind, limit, amount) = (refusal.ask.bucket.kind(), refusal.ask.limit, refusal.ask.amount);
    let wait_ms = match refusal.why {
        Why::Short { retry_after_ms } => retry_after_ms,
        Why::TooLarge => {
            let message = format!(
                "This request may use {amount} tokens, more than the limit of {limit} {}: shorten the prompt or \
                 lower the maximum of output tokens.",
                unit(kind)
            );
            return LocalReply::named_error(
                400,
                &message,
                "invalid_request_error",
                "request_too_large",
            );
        }
        Why::TableFull => {
            let message = "Too many tenants are active at once to account for this request.";
            return LocalReply::error(503, message, None).retry_later();
        }
    };
    let wait = duration(wait_ms);
    let message = match kind {
        Kind::Requests | Kind::Tokens => format!(
            "Rate limit reached: limit {limit} {}, requested {amount}. Please try again in {wait}.",
            unit(kind)
        ),
        Kind::Concurrency => {
            format!("Limit of {limit} {} reached. Please try again later.", unit(kind))
        }
        Kind::InflightTokens => format!(
            "Limit reached: limit {limit} {}, requested {amount}. Please try again later.",
            unit(kind)
        ),
    };
    let topic = match kind {
        Kind::Requests | Kind::Concurrency => "requests",
        Kind::Tokens | Kind::InflightTokens => "tokens",
    };
    let mut reply = LocalReply::named_error(429, &message, topic, "rate_limit_exceeded");
    let seconds = wait_ms.div_ceil(1000).max(1).to_string();
    reply.headers.push(("retry-after", seconds.into()));
    let levels = rate_limit_headers(&refusal.levels);
    reply.headers.extend(levels.into_iter().map(|(name, value)| (name, value.into())));
    reply
}

/// The headers of any answer, good or bad: limit, remaining amount, and the time until all of it is back, for the limits
/// a minute that there are.
#[must_use]
pub fn rate_limit_headers(levels: &[Level]) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    for level in levels {
        let [limit, remaining, reset] = match level.bucket.kind() {
            Kind::Requests => [
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
            ],
            Kind::Tokens => [
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
            ],
            Kind::Concurrency | Kind::InflightTokens => continue,
        };
        headers.extend([
            (limit, level.limit.to_string()),
            (remaining, level.remaining().to_string()),
            (reset, duration(level.reset_ms)),
        ]);
    }
    headers
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Requests => "requests per minute (RPM)",
        Kind::Tokens => "tokens per minute (TPM)",
        Kind::Concurrency => "requests at once",
        Kind::InflightTokens => "tokens at once",
    }
}

/// A time as OpenAI writes it: `0s`, `12ms`, `1s`, `7.66s`, `6m0s`, `1h0m0.5s`.
pub(super) fn duration(ms: u64) -> String {
    if ms == 0 {
        return "0s".into();
    }
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let fraction = format!("{:03}", rest % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let seconds = format!("{}{point}{fraction}s", rest / 1000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}
