//! Totals and cost out of the ledger's file.
//!
//! - [`period`]: which time; [`query`]: which rows, in which groups; [`price`]: exact cost;
//! - [`render`]: as table, CSV or JSON.

pub mod period;
pub mod price;
pub mod query;
pub mod render;

#[cfg(test)]
mod tests;

pub use period::Period;
pub use price::{Cost, Prices};
pub use query::{By, Filter, Group, Report, report};
pub use render::Format;

use super::store::StoreError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file cannot be read.
    #[error("the ledger cannot be read ({0}); check that it is whole")]
    Read(#[from] rusqlite::Error),
    /// A time that is none.
    #[error(
        "`{0}` is no time; give an age like 90s, 30m, 24h, 7d or 4w, or a time like 2026-11-30T09:00:00Z"
    )]
    Time(String),
    /// Rows for something that has none.
    #[error("`{0}` has no rows; give some of tenant, model, day, cause")]
    By(String),
    /// More rows than whoever asked takes.
    #[error(
        "there are more than {0} rows; narrow it by tenant, model, since or until, name less in by, or print all of it \
         with `warmroute-agent usage`"
    )]
    TooManyRows(usize),
    /// Tokens of a model that has no price.
    #[error("model `{0}` has tokens and no price; add it to the prices, or `\"*\"` for all others")]
    NoPrice(String),
    /// The prices cannot be read.
    #[error("prices: {0}")]
    Prices(String),
}
