//! `POST /v1/records`: usage records from filters. `GET /v1/usage`: totals out of the ledger.

use super::Server;
use crate::app::now_ms;
use crate::ledger::metrics::BatchResult;
use crate::ledger::report::{By, Filter, Period, ReportError, report};
use crate::ledger::store::open_to_read;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use clap::ValueEnum as _;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use warmroute_shared_state::usage_record::batch::{
    Batch, BatchError, MAX_BATCH_BYTES, acknowledgement,
};

/// Time for a batch's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Rows of a report at most: it is made in memory.
const MAX_ROWS: usize = 10_000;

/// Stores a batch; 200 with its number when it is on the disk, 503 if it is to be sent again.
pub async fn records(State(server): State<Server>, body: Body) -> Response {
    let ledger = &server.ledger;
    let place = match ledger.place() {
        Ok(place) => place,
        Err(error) => return again(&error),
    };
    let refused = |status: StatusCode, text: String| {
        ledger.counted().metrics.batch(BatchResult::refused);
        (status, text).into_response()
    };
    let body = match super::body(body, "batch", MAX_BATCH_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err((status, text)) => return refused(status, text),
    };
    let batch = match Batch::decode(&body) {
        Ok(batch) => batch,
        Err(error) => {
            let status = match error {
                BatchError::TooLarge { .. } | BatchError::TooMany { .. } => {
                    StatusCode::PAYLOAD_TOO_LARGE
                }
                BatchError::Wire(_) => StatusCode::BAD_REQUEST,
            };
            return refused(status, format!("{error}\n"));
        }
    };
    let seq = batch.head.seq;
    match ledger.take(&place, batch).await {
        Ok(_) => acknowledgement(seq).into_response(),
        Err(error) => again(&error),
    }
}

fn again(error: &crate::ledger::NotTaken) -> Response {
    let text = format!("{error}\n");
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], text).into_response()
}

/// The query of `/v1/usage`: the options of `warmroute-agent usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    tenant: Option<String>,
    model: Option<String>,
    since: Option<String>,
    until: Option<String>,
    by: Option<String>,
}

/// Answers with what `warmroute-agent usage --format json` prints.
pub async fn usage(State(server): State<Server>, Query(ask): Query<Ask>) -> Response {
    let Some(file) = server.ledger.file().cloned() else {
        let text = "this agent keeps no ledger; start it without --no-ledger\n";
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    // One at a time: a long one reads the whole file, also when whoever asked hangs up.
    let Ok(turn) = server.ledger.report_turn().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        json(&file, ask)
    })
    .await;
    match made {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(error)) => {
            let status = match error {
                ReportError::Time(_) | ReportError::By(_) | ReportError::TooManyRows(_) => {
                    StatusCode::BAD_REQUEST
                }
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{error}\n")).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn json(file: &Path, ask: Ask) -> Result<String, ReportError> {
    let by = ask.by.as_deref().unwrap_or("tenant,model");
    let mut columns = Vec::new();
    for name in by.split(',').filter(|name| !name.is_empty()) {
        let column = By::from_str(name, true).map_err(|_| ReportError::By(name.to_owned()))?;
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let period = Period::new(ask.since.as_deref(), ask.until.as_deref(), now_ms())?;
    let filter = Filter { tenant: ask.tenant, model: ask.model, period, max_rows: MAX_ROWS };
    let report = report(&open_to_read(file)?, &filter, &columns, None)?;
    Ok(format!("{:#}\n", report.json()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Shared;
    use crate::ledger::{Ledger, Settings};
    use std::sync::Arc;
    use tokio::sync::watch;

    #[tokio::test]
    async fn a_report_that_nobody_waits_for_any_more_still_has_the_turn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage.sqlite");
        let settings = Settings { file: Some(file.clone()), ..Settings::off() };
        let ledger = Arc::new(Ledger::start(settings, || 0).unwrap());
        // Whoever reads has to wait.
        let lock = rusqlite::Connection::open(&file).unwrap();
        lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let (_stop, stopping) = watch::channel(false);
        let server = Server::new(Arc::new(Shared::new(1)), Arc::clone(&ledger), stopping);
        let ask = Ask { tenant: None, model: None, since: None, until: None, by: None };
        tokio::select! {
            biased;
            _ = usage(State(server), Query(ask)) => unreachable!("the file is locked"),
            () = std::future::ready(()) => {}
        }
        tokio::select! {
            biased;
            _ = ledger.report_turn() => unreachable!("the first is not done"),
            () = std::future::ready(()) => {}
        }
        lock.execute_batch("ROLLBACK").unwrap();
        assert!(ledger.report_turn().await.is_ok());
    }
}
