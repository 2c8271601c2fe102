//! The agent: its endpoints file, its readiness, what it says of the endpoints.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Process, ProcessError, Programs, Session, control};

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Agent {
    /// Starts it on `address` and waits for its first full table.
    ///
    /// `arguments` are added to the command line.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(
        programs: &Programs,
        address: SocketAddr,
        dir: &Path,
        pool: &str,
        arguments: &[String],
        session: Session,
    ) -> Result<Self, ProcessError> {
        let eds = eds_dir(dir);
        std::fs::create_dir_all(&eds).map_err(ProcessError::io("create", &eds))?;
        let mut all = vec![
            "run".to_owned(),
            "--config".to_owned(),
            endpoints_file(dir).display().to_string(),
            "--listen".to_owned(),
            address.to_string(),
            "--eds-dir".to_owned(),
            eds.display().to_string(),
            "--pool".to_owned(),
            pool.to_owned(),
        ];
        // Else it would keep its ledger with the machine's own.
        if !arguments.iter().any(|argument| matches!(argument.as_str(), "--ledger" | "--no-ledger"))
        {
            all.extend(["--ledger".to_owned(), ledger_file(dir).display().to_string()]);
        }
        all.extend(arguments.iter().cloned());
        let mut process = Process::start("warmroute-agent", &programs.agent, &all, dir, session)?;
        let ready = async || {
            control::get(address, "/readyz").await.ok().filter(|answer| answer.status == 200)
        };
        process.wait_ready(Duration::from_secs(30), ready).await?;
        Ok(Self { process, address })
    }

    /// What it knows of its endpoints.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn endpoints(&self) -> Result<Vec<Known>, ProcessError> {
        let answer = control::get(self.address, "/v1/endpoints").await?;
        let page: Page =
            serde_json::from_slice(&answer.body).map_err(|error| ProcessError::Control {
                method: "GET",
                address: self.address,
                path: "/v1/endpoints".to_owned(),
                reason: error.to_string(),
            })?;
        Ok(page.endpoints)
    }
}

/// What the agent knows of an endpoint; the fields of `GET /v1/endpoints` that matter here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Known {
    /// `ip:port`.
    pub address: SocketAddr,
    /// `pending`, `ready` or `out`.
    pub state: String,
    /// Whether the filter has been told of it.
    pub on_stream: bool,
    /// Share of its KV blocks in use.
    pub kv_usage: Option<f64>,
    /// Changes when the engine starts anew.
    pub generation: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    endpoints: Vec<Known>,
}

/// The endpoints file in the folder of a run.
pub(super) fn endpoints_file(dir: &Path) -> PathBuf {
    dir.join("endpoints.yaml")
}

/// The usage ledger in the folder of a run, unless the agent's arguments name another.
fn ledger_file(dir: &Path) -> PathBuf {
    dir.join("usage.sqlite")
}

/// The folder through which the agent tells Envoy the endpoints.
pub(super) fn eds_dir(dir: &Path) -> PathBuf {
    dir.join("eds")
}

/// Documents that have the agent follow the KV events of a model's engines. `folder`: its tokenizer and template.
#[must_use]
pub fn precise_documents(model: &str, folder: &Path, adapters: &[String]) -> String {
    // JSON strings are YAML strings.
    let text = |value: &str| serde_json::Value::from(value).to_string();
    format!(
        "---\nkind: KVEvents\n---\nkind: Model\nname: {}\nfolder: {}\nadapters: {}\n",
        text(model),
        text(&folder.display().to_string()),
        serde_json::Value::from(adapters),
    )
}

/// Writes the endpoints file of the run folder `dir`; a running agent takes it up by itself.
///
/// # Errors
/// When it cannot be written.
pub fn write_endpoints(dir: &Path, endpoints: &[SocketAddr]) -> Result<PathBuf, ProcessError> {
    write_configuration(dir, endpoints, "")
}

/// The same with further documents behind the endpoints.
///
/// # Errors
/// When it cannot be written.
pub fn write_configuration(
    dir: &Path,
    endpoints: &[SocketAddr],
    documents: &str,
) -> Result<PathBuf, ProcessError> {
    let mut yaml = String::from("endpoints:");
    if endpoints.is_empty() {
        yaml.push_str(" []");
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let (ip, port) = (endpoint.ip(), endpoint.port());
        write!(yaml, "\n- name: engine-{index}\n  address: \"{ip}\"\n  port: {port}")
            .expect("writing to a string cannot fail");
    }
    yaml.push('\n');
    yaml.push_str(documents);
    let path = endpoints_file(dir);
    // By a rename, so that the agent never reads half a file.
    let half = dir.join("endpoints.yaml.new");
    std::fs::write(&half, yaml).map_err(ProcessError::io("write", &half))?;
    std::fs::rename(&half, &path).map_err(ProcessError::io("replace", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_quote_what_they_are_given() {
        let documents = precise_documents("tiny: \"x\"", Path::new("/m"), &["lora-a".to_owned()]);
        let expected = "---\nkind: KVEvents\n---\nkind: Model\nname: \"tiny: \\\"x\\\"\"\nfolder: \"/m\"\n\
                        adapters: [\"lora-a\"]\n";
        assert_eq!(documents, expected);
    }

    #[test]
    fn the_endpoints_file_names_each_endpoint() {
        let dir = tempfile::tempdir().unwrap();
        let endpoints = [SocketAddr::from(([127, 0, 0, 1], 9101)), "[::1]:9102".parse().unwrap()];
        let path = write_endpoints(dir.path(), &endpoints).unwrap();
        let expected = "endpoints:\n- name: engine-0\n  address: \"127.0.0.1\"\n  port: 9101\n\
                        - name: engine-1\n  address: \"::1\"\n  port: 9102\n";
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
        let path = write_endpoints(dir.path(), &[]).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "endpoints: []\n");
    }
}
