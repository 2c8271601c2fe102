//! The subcommands.

pub(crate) mod bench_kv;
pub(crate) mod down;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod up;

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal as listen};

/// What a command ends with when it could not do its work.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Waits for Ctrl-C or SIGTERM; says which.
pub(crate) async fn signal() -> &'static str {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (listen(SignalKind::interrupt()), listen(SignalKind::terminate()))
    else {
        // Without handlers a signal ends the process at once, as it does by default.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
    }
}

/// Writes to standard output, and does not mind if nobody reads it.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Folder of what `up` started.
pub(crate) fn running_dir(root: &Path) -> PathBuf {
    root.join(".run")
}

/// Where `up` writes down what it started.
pub(crate) fn records_file(root: &Path) -> PathBuf {
    running_dir(root).join("processes.json")
}
