//! The ledger's file: SQLite, one row a request.

use rusqlite::{Connection, OpenFlags, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Version of the schema, in the file's `user_version`.
const VERSION: i64 = 1;
/// How long another program may hold the file.
const BUSY: Duration = Duration::from_secs(5);
/// Counts beyond this are an engine's or a client's nonsense; sums of millions of them still fit.
const MAX_COUNT: u64 = 1 << 40;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS usage (
    vm INTEGER NOT NULL, number INTEGER NOT NULL, at_ms INTEGER NOT NULL, request_id TEXT NOT NULL,
    tenant TEXT NOT NULL, fairness_id TEXT NOT NULL, model TEXT NOT NULL, target_model TEXT NOT NULL,
    pool TEXT NOT NULL, endpoint TEXT NOT NULL, attempts INTEGER NOT NULL, priority INTEGER NOT NULL,
    status INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, exact INTEGER NOT NULL, reserved INTEGER NOT NULL,
    charged INTEGER NOT NULL, cause TEXT NOT NULL, dropped TEXT NOT NULL, flow TEXT NOT NULL,
    queue_ms INTEGER NOT NULL, ttft_ms INTEGER, duration_ms INTEGER NOT NULL,
    streamed INTEGER NOT NULL, request_bytes INTEGER NOT NULL, response_bytes INTEGER NOT NULL,
    PRIMARY KEY (vm, number)
) STRICT;
CREATE INDEX IF NOT EXISTS usage_by_tenant ON usage (tenant, at_ms);
CREATE INDEX IF NOT EXISTS usage_by_time ON usage (at_ms);
";

const INSERT: &str = "
INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
    ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)
ON CONFLICT (vm, number) DO NOTHING";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its folder cannot be made.
    #[error("cannot make the folder of {file} ({source}); make it or choose another --ledger")]
    Folder {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// SQLite refuses.
    #[error(
        "the ledger {file} cannot be {what} ({source}); check its folder, its disk and its rights, move it away if it is broken"
    )]
    File {
        /// The file.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Written by a newer agent.
    #[error(
        "the ledger {file} has version {found}, this agent knows {VERSION}; use the newer agent or another --ledger"
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
    },
}

/// The file, opened for writing.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    connection: Connection,
}

impl Store {
    /// Opens the file and makes it if there is none.
    ///
    /// # Errors
    /// If it cannot be made or read.
    pub fn open(file: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|source| StoreError::Folder { file: file.to_owned(), source })?;
        }
        let failed = |source| StoreError::File { file: file.to_owned(), what: "opened", source };
        let connection = Connection::open(file).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        // A reader never waits for the writer; what a commit returned for is on the disk.
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
        check_version(&connection, file)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        connection.pragma_update(None, "user_version", VERSION).map_err(failed)?;
        Ok(Self { file: file.to_owned(), connection })
    }

    /// Stores records in one commit: all or none. Tells of each whether it was not there before.
    ///
    /// # Errors
    /// If nothing was stored.
    pub fn insert<'a>(
        &mut self,
        records: impl Iterator<Item = &'a UsageRecord>,
    ) -> Result<Vec<bool>, StoreError> {
        self.commit(records).map_err(|source| StoreError::File {
            file: self.file.clone(),
            what: "written",
            source,
        })
    }

    fn commit<'a>(
        &mut self,
        records: impl Iterator<Item = &'a UsageRecord>,
    ) -> Result<Vec<bool>, rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
        let fresh =
            records.map(|record| insert_one(&mut insert, record)).collect::<Result<_, _>>()?;
        drop(insert);
        transaction.commit()?;
        Ok(fresh)
    }

    /// Removes some of the records from before `before_ms`, at most `limit`; how many.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn prune(&mut self, before_ms: u64, limit: u32) -> Result<usize, StoreError> {
        let sql = "DELETE FROM usage WHERE rowid IN \
                   (SELECT rowid FROM usage WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)";
        let failed = |source| StoreError::File { file: self.file.clone(), what: "written", source };
        self.connection.execute(sql, params![time(before_ms), limit]).map_err(failed)
    }
}

/// Opens the file to read, also while an agent writes to it.
///
/// # Errors
/// If there is none, or it is no ledger of this version.
pub fn open_to_read(file: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::File { file: file.to_owned(), what: "opened", source };
    let connection = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    check_version(&connection, file)?;
    Ok(connection)
}

fn check_version(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File { file: file.to_owned(), what: "read", source };
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let found: i64 = version.map_err(failed)?;
    if found > VERSION {
        return Err(StoreError::Newer { file: file.to_owned(), found });
    }
    Ok(())
}

/// Whether it was not there before.
fn insert_one(
    insert: &mut rusqlite::Statement<'_>,
    record: &UsageRecord,
) -> Result<bool, rusqlite::Error> {
    // Nothing was computed for what was refused, whatever it asked for.
    let computed = |tokens: u64| if record.cause == EndCause::Rejected { 0 } else { count(tokens) };
    let (input, output) = (computed(record.input_tokens), computed(record.output_tokens));
    let changed = insert.execute(params![
        record.id.0.cast_signed(),
        record.id.1.cast_signed(),
        time(record.at_ms),
        record.request_id,
        record.tenant,
        record.fairness_id,
        record.model,
        record.target_model,
        record.pool,
        record.endpoint,
        record.attempts,
        record.priority,
        record.status,
        input,
        computed(record.cached_tokens).min(input),
        output,
        computed(record.reasoning_tokens).min(output),
        record.exact,
        count(record.reserved_tokens),
        count(record.charged_tokens),
        record.cause.as_str(),
        record.dropped,
        record.flow.map_or("", |flow| flow.as_str()),
        count(record.queue_ms),
        record.ttft_ms.map(count),
        count(record.duration_ms),
        record.streamed,
        count(record.request_bytes),
        count(record.response_bytes),
    ])?;
    Ok(changed == 1)
}

fn count(value: u64) -> i64 {
    value.min(MAX_COUNT).cast_signed()
}

/// The year 9999 at most: SQLite's dates end there.
fn time(ms: u64) -> i64 {
    ms.min(253_402_300_799_999).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{record, whole};

    fn open() -> (tempfile::TempDir, PathBuf, Store) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage.sqlite");
        let store = Store::open(&file).unwrap();
        (folder, file, store)
    }

    #[test]
    fn a_full_disk_keeps_nothing_of_a_commit_and_all_of_those_before() {
        let (_folder, file, mut store) = open();
        let first: Vec<_> = (0..100).map(record).collect();
        store.insert(first.iter()).unwrap();
        let pages: i64 =
            store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.connection.pragma_update(None, "max_page_count", pages + 2).unwrap();
        let second: Vec<_> = (100..4000).map(record).collect();
        let error = store.insert(second.iter()).unwrap_err().to_string();
        assert!(error.contains("cannot be written (database or disk is full)"), "{error}");
        assert_eq!(whole(&file, &[]).total.requests, 100);
        store.connection.pragma_update(None, "max_page_count", 100_000).unwrap();
        store.insert(second.iter()).unwrap();
        assert_eq!(whole(&file, &[]).total.requests, 4000);
    }

    #[test]
    fn old_records_are_removed_in_bounded_steps() {
        let (_folder, file, mut store) = open();
        let records: Vec<_> = (0..100).map(record).collect();
        store.insert(records.iter()).unwrap();
        let before = record(50).at_ms;
        let removed: Vec<_> = (0..3).map(|_| store.prune(before, 30).unwrap()).collect();
        assert_eq!(removed, [30, 20, 0]);
        assert_eq!(whole(&file, &[]).total.requests, 50);
    }

    #[test]
    fn nonsense_is_stored_as_something_that_can_be_added_up() {
        let (_folder, file, mut store) = open();
        let of = |number| UsageRecord {
            id: (u64::MAX, number),
            at_ms: u64::MAX,
            input_tokens: u64::MAX,
            cached_tokens: u64::MAX,
            output_tokens: 3,
            reasoning_tokens: 9,
            charged_tokens: u64::MAX,
            ..record(1)
        };
        store.insert([of(u64::MAX), of(0)].iter()).unwrap();
        let sums = whole(&file, &[]).total;
        assert_eq!(
            (sums.input, sums.cached, sums.output, sums.reasoning),
            (1 << 41, 1 << 41, 6, 6)
        );
        assert_eq!(sums.charged, 1 << 41);
    }

    #[test]
    fn a_newer_file_is_left_alone() {
        let (_folder, file, store) = open();
        store.connection.pragma_update(None, "user_version", 2).unwrap();
        drop(store);
        for error in [Store::open(&file).unwrap_err(), open_to_read(&file).unwrap_err()] {
            assert!(matches!(error, StoreError::Newer { found: 2, .. }), "{error}");
        }
    }

    #[test]
    fn a_reader_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("none.sqlite");
        let error = open_to_read(&file).unwrap_err().to_string();
        assert!(error.contains("cannot be opened") && !file.exists(), "{error}");
    }

    /// The indices are there for this.
    #[test]
    fn a_tenants_period_is_found_by_its_index() {
        let (_folder, _file, store) = open();
        for (condition, index) in
            [("tenant = 'a' AND at_ms > 5", "usage_by_tenant"), ("at_ms < 5", "usage_by_time")]
        {
            let sql = format!("EXPLAIN QUERY PLAN SELECT sum(input) FROM usage WHERE {condition}");
            let plan: String = store.connection.query_row(&sql, [], |row| row.get(3)).unwrap();
            assert!(plan.contains(index), "{plan}");
        }
    }
}
