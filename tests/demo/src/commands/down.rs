//! `down`: stops what `up` started.

use warmroute_demo::processes::{Record, workspace_root};

use super::{Failure, records_file, say};

pub(crate) fn down() -> Result<(), Failure> {
    let path = records_file(&workspace_root()?);
    let Ok(text) = std::fs::read_to_string(&path) else {
        say("nothing is running");
        return Ok(());
    };
    let records: Vec<Record> = serde_json::from_str(&text)?;
    for record in &records {
        let state = if record.alive() { "stopped" } else { "had ended already" };
        record.stop();
        if record.alive() {
            return Err(format!("{} (process {}) does not stop", record.name, record.pid).into());
        }
        say(&format!("{} {state}", record.name));
    }
    std::fs::remove_file(&path)?;
    Ok(())
}
