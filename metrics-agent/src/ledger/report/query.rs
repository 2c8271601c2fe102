//! Which rows, added up by what.

use super::{Cost, Period, Prices, ReportError};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;
use warmroute_shared_state::usage_record::EndCause;

/// What a report has a row for each of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Tenant.
    Tenant,
    /// The client's model name.
    Model,
    /// Day, in UTC.
    Day,
    /// How requests ended.
    Cause,
}

impl By {
    /// Heading of its column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Model => "model",
            Self::Day => "day",
            Self::Cause => "cause",
        }
    }

    fn column(self) -> &'static str {
        match self {
            Self::Day => "date(at_ms / 1000, 'unixepoch')",
            other => other.name(),
        }
    }
}

/// Which requests count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// Of this model only.
    pub model: Option<String>,
    /// When they came.
    pub period: Period,
    /// Rows of the report at most: clients choose models' names.
    pub max_rows: usize,
}

/// Sums over requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens, with cached ones.
    pub input: u64,
    /// Prompt tokens out of the cache.
    pub cached: u64,
    /// Output tokens, with reasoning.
    pub output: u64,
    /// Reasoning tokens.
    pub reasoning: u64,
    /// Tokens charged to budgets.
    pub charged: u64,
    /// Requests whose tokens the engine did not tell.
    pub estimated: u64,
    /// Requests by how they ended, in the order of [`EndCause::ALL`].
    pub causes: [u64; EndCause::ALL.len()],
    /// What the tokens cost, if there are prices.
    pub cost: Option<Cost>,
}

impl Group {
    fn add(&mut self, other: &Self) {
        for (sum, value) in [
            (&mut self.requests, other.requests),
            (&mut self.input, other.input),
            (&mut self.cached, other.cached),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
            (&mut self.charged, other.charged),
            (&mut self.estimated, other.estimated),
        ] {
            *sum = sum.saturating_add(value);
        }
        for (sum, value) in self.causes.iter_mut().zip(other.causes) {
            *sum = sum.saturating_add(value);
        }
        if let Some(cost) = other.cost {
            self.cost = Some(self.cost.unwrap_or_default().plus(cost));
        }
    }
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What there is a row for each of.
    pub by: Vec<By>,
    /// The rows, by their names.
    pub rows: Vec<(Vec<String>, Group)>,
    /// All of them.
    pub total: Group,
    /// The prices' currency, if there are prices.
    pub currency: Option<String>,
}

/// Adds up what the filter lets through.
///
/// # Errors
/// If the file cannot be read, a price is missing, or there are too many rows.
pub fn report(
    connection: &Connection,
    filter: &Filter,
    by: &[By],
    prices: Option<&Prices>,
) -> Result<Report, ReportError> {
    let causes = EndCause::ALL.map(|cause| format!(", sum(cause = '{}')", cause.as_str())).concat();
    let columns: String = by.iter().map(|by| format!(", {}", by.column())).collect();
    // By model in any case: prices are.
    // Told as a plain condition, so that SQLite sees which index helps.
    let tenant = if filter.tenant.is_some() { "tenant = ?3" } else { "?3 IS NULL" };
    let model = if filter.model.is_some() { "model = ?4" } else { "?4 IS NULL" };
    let sql = format!(
        "SELECT model, count(*), sum(input), sum(cached), sum(output), sum(reasoning), sum(charged),
            sum(exact = 0 AND cause <> 'rejected'){causes}{columns}
         FROM usage WHERE at_ms >= ?1 AND at_ms < ?2
            AND {tenant} AND {model}
         GROUP BY model{columns}"
    );
    let mut statement = connection.prepare(&sql)?;
    let Period { since_ms, until_ms } = filter.period;
    let mut found = statement.query(params![since_ms, until_ms, filter.tenant, filter.model])?;
    let mut rows: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    let mut total = Group { cost: prices.map(|_| Cost::default()), ..Group::default() };
    while let Some(row) = found.next()? {
        let (names, group) = read(row, by.len(), prices)?;
        total.add(&group);
        rows.entry(names).or_default().add(&group);
        if rows.len() > filter.max_rows {
            return Err(ReportError::TooManyRows(filter.max_rows));
        }
    }
    let currency = prices.map(|prices| prices.currency.clone());
    Ok(Report { by: by.to_vec(), rows: rows.into_iter().collect(), total, currency })
}

fn read(
    row: &Row<'_>,
    names: usize,
    prices: Option<&Prices>,
) -> Result<(Vec<String>, Group), ReportError> {
    let model: String = row.get(0)?;
    let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    let mut group = Group {
        requests: number(1)?,
        input: number(2)?,
        cached: number(3)?,
        output: number(4)?,
        reasoning: number(5)?,
        charged: number(6)?,
        estimated: number(7)?,
        ..Group::default()
    };
    for (at, cause) in group.causes.iter_mut().enumerate() {
        *cause = number(8 + at)?;
    }
    if let Some(prices) = prices {
        group.cost = Some(prices.cost(&model, group.input, group.cached, group.output)?);
    }
    let first = 8 + group.causes.len();
    let names = (first..first + names).map(|at| row.get(at)).collect::<Result<_, _>>()?;
    Ok((names, group))
}
