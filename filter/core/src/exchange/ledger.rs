//! A finished exchange as a record for the ledger.

use super::{Cause, Env, Exchange};
use crate::response::{Outcome, Truncation};
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

impl Exchange {
    /// Once, at the very end.
    pub(super) fn write_to_ledger(&mut self, env: &mut Env<'_>) {
        // Anybody can be nobody, as often as they like: that fills no ledger.
        if self.in_ledger || self.unknown || !env.config.usage_records {
            return;
        }
        let record = &self.record;
        let labels = record.labels();
        let charged = self.charged.unwrap_or_default();
        let refused = matches!(record.cause, Some(Cause::Rejected(_)));
        let usage_record = UsageRecord {
            id: env.ledger.next_id(),
            at_ms: self.started_ms,
            request_id: self.head.headers.get("x-request-id").unwrap_or_default().to_owned(),
            tenant: record.tenant.clone().unwrap_or_default(),
            fairness_id: labels.fairness_id.into_owned(),
            model: labels.model.into_owned(),
            target_model: labels.target_model.into_owned(),
            pool: record.pool.clone().unwrap_or_default(),
            endpoint: record.endpoint.clone().unwrap_or_default(),
            attempts: record.attempts,
            priority: record.priority,
            status: record.status,
            input_tokens: charged.input,
            cached_tokens: charged.cached,
            output_tokens: charged.output,
            reasoning_tokens: charged.reasoning,
            exact: charged.exact,
            reserved_tokens: if refused { 0 } else { self.account.budget.reserved },
            charged_tokens: charged.tokens(),
            cause: cause(record.cause, record.evicted),
            dropped: record.dropped.unwrap_or_default().to_owned(),
            flow: record.flow_outcome,
            queue_ms: record.queue_ms,
            ttft_ms: record.ttft_ms,
            duration_ms: env.now_ms.saturating_sub(self.started_ms),
            streamed: record.streamed,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
        };
        env.ledger.push(&usage_record, env.now_ms);
        self.in_ledger = true;
    }
}

fn cause(cause: Option<Cause>, evicted: bool) -> EndCause {
    match cause {
        _ if evicted => EndCause::Evicted,
        Some(Cause::Rejected(_)) => EndCause::Rejected,
        Some(Cause::Answered(Outcome::Completed)) => EndCause::Natural,
        Some(Cause::ClientGone | Cause::Answered(Outcome::ClientGone)) => EndCause::Disconnect,
        // The idle limit ends a stream without a word.
        Some(Cause::Answered(Outcome::Truncated(Truncation::End))) => EndCause::Timeout,
        _ => EndCause::UpstreamError,
    }
}
