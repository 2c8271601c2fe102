//! Envoy's bootstrap: the shipped template, changed and filled in for a test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use warmroute_demo::processes::{Bootstrap, Ports, Programs, render};

use crate::setup::Setup;
use crate::stack::{DEBUG_PATH, POOL};
use crate::{access_log, listener_file};

/// Writes the bootstrap (and the listener's file, if there is one) in `dir`; returns the bootstrap's path. `shared`
/// is the folder where the agent writes.
pub(crate) fn write(
    programs: &Programs,
    ports: Ports,
    setup: &Setup,
    shared: &Path,
    dir: &Path,
) -> Result<PathBuf> {
    let mut template = std::fs::read_to_string(&programs.template)?;
    if let Some(edit) = &setup.edit_template {
        let edited = edit(template.clone());
        if edited == template {
            bail!("the edit of the bootstrap template changed nothing");
        }
        template = edited;
    }
    let extra = format!(r#", "debug_path": "{DEBUG_PATH}"{}"#, setup.plugin_config_extra);
    let values = Bootstrap {
        wasm: &programs.wasm,
        listen_port: ports.listen,
        admin_port: ports.admin,
        agent: SocketAddr::from(([127, 0, 0, 1], ports.agent)),
        // Where `Agent::start` has the endpoints written.
        eds_dir: &shared.join("eds"),
        pool: POOL,
        access_log: &dir.join(access_log::FILE),
        plugin_config_extra: &extra,
    };
    let mut bootstrap = render(&template, &values)?;
    if setup.listener_file {
        bootstrap = listener_file::split_off(&bootstrap, dir)?;
    }
    let path = dir.join("envoy.yaml");
    std::fs::write(&path, bootstrap)?;
    Ok(path)
}
