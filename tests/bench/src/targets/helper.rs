//! What runs beside a proxy.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process_group};
use warmroute_demo::processes::{Process, ProcessError, Session};

/// An agent, or a shell with a picker.
#[derive(Debug)]
pub struct Helper {
    process: Process,
    /// Whether what it started has to be ended, too.
    group: bool,
}

impl From<Process> for Helper {
    fn from(process: Process) -> Self {
        Self { process, group: false }
    }
}

impl Helper {
    /// Has a shell run `command`. When this is dropped both end: a shell that is ended alone leaves behind what it runs.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn shell(name: &str, command: &str, dir: &Path) -> Result<Self, ProcessError> {
        // With a trap of its own the shell stays until the command has ended.
        let arguments = ["-c".to_owned(), format!("trap : TERM\n{command}")];
        let process = Process::start(name, "sh".as_ref(), &arguments, dir, Session::Own)?;
        Ok(Self { process, group: true })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its process, to wait for.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let Some(group) = group.filter(|_| self.group) {
            // An error here means that nobody is left in it.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        self.process.stop();
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use warmroute_demo::processes::wait_until;

    #[tokio::test]
    async fn what_a_shell_runs_ends_with_it() {
        for command in ["sleep 60 & echo $!; wait", "sh -c 'echo $$; exec sleep 60'; true"] {
            let dir = tempfile::tempdir().unwrap();
            let helper = Helper::shell("picker", command, dir.path()).unwrap();
            let output = helper.process.output();
            let started =
                async || std::fs::read_to_string(&output).ok()?.trim().parse::<u32>().ok();
            let pid =
                wait_until("a pid", Duration::from_secs(5), dir.path(), started).await.unwrap();
            assert!(runs(pid));
            drop(helper);
            let ended = async || (!runs(pid)).then_some(());
            wait_until("its end", Duration::from_secs(5), dir.path(), ended).await.unwrap();
        }
    }

    fn runs(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }
}
