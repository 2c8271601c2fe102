//! How a program that starts others ends.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tokio::signal::unix::{SignalKind, signal as listen};

/// Runs `work` of the program of this name; success if it comes to true, with a word on standard
/// error if it fails. On Ctrl-C or SIGTERM the work is dropped where it waits, and with it every
/// program that it started.
pub async fn until_signal(program: &str, work: impl Future<Output = Result<bool>>) -> ExitCode {
    let result = tokio::select! {
        // In this order the signals are listened for before anything is started.
        biased;
        name = signal() => Err(anyhow!("stopped by {name}")),
        result = work => result,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn signal() -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::{Process, Session};
    use rustix::process::{Signal, getpid, kill_process};

    #[tokio::test]
    async fn a_signal_ends_what_the_work_has_started() {
        let dir = tempfile::tempdir().unwrap();
        let started = std::cell::Cell::new(None);
        let work = async {
            let arguments = ["60".to_owned()];
            let shared = Session::Shared;
            let sleep = Process::start("sleep", "sleep".as_ref(), &arguments, dir.path(), shared)?;
            started.set(Some(sleep.record()));
            kill_process(getpid(), Signal::TERM)?;
            std::future::pending().await
        };
        let code = until_signal("test", work).await;
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        assert!(!started.take().unwrap().alive());
    }

    #[tokio::test]
    async fn the_code_is_what_the_work_came_to() {
        for (result, code) in [
            (Ok(true), ExitCode::SUCCESS),
            (Ok(false), ExitCode::FAILURE),
            (Err(anyhow!("wrong")), ExitCode::FAILURE),
        ] {
            let ended = until_signal("test", async { result }).await;
            assert_eq!(format!("{ended:?}"), format!("{code:?}"));
        }
    }
}
