//! Fills in Envoy's bootstrap template.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use super::ProcessError;

/// What the template asks for.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap<'a> {
    /// The wasm module.
    pub wasm: &'a Path,
    /// Port for clients.
    pub listen_port: u16,
    /// Port of the admin interface.
    pub admin_port: u16,
    /// The agent.
    pub agent: SocketAddr,
    /// Folder into which the agent writes the endpoints.
    pub eds_dir: &'a Path,
    /// Name of the pool.
    pub pool: &'a str,
    /// The access log.
    pub access_log: &'a Path,
    /// More fields of the plugin configuration, each with a comma before it; or nothing.
    pub plugin_config_extra: &'a str,
}

/// Replaces every `${NAME}` in `template`.
///
/// # Errors
/// On a name that is not one of [`Bootstrap`]'s, so that a template that has moved on is noticed.
pub fn render(template: &str, values: &Bootstrap<'_>) -> Result<String, ProcessError> {
    let mut out = String::with_capacity(template.len() + 256);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            return Err(ProcessError::Placeholder(after.chars().take(20).collect()));
        };
        let written = match name {
            "WARMROUTE_WASM" => write!(out, "{}", values.wasm.display()),
            "LISTEN_PORT" => write!(out, "{}", values.listen_port),
            "ADMIN_PORT" => write!(out, "{}", values.admin_port),
            "AGENT_ADDRESS" => write!(out, "{}", values.agent.ip()),
            "AGENT_PORT" => write!(out, "{}", values.agent.port()),
            "EDS_DIR" => write!(out, "{}", values.eds_dir.display()),
            "POOL" => out.write_str(values.pool),
            "ACCESS_LOG" => write!(out, "{}", values.access_log.display()),
            "PLUGIN_CONFIG_EXTRA" => out.write_str(values.plugin_config_extra),
            _ => return Err(ProcessError::Placeholder(name.to_owned())),
        };
        written.expect("writing to a string cannot fail");
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Bootstrap<'static> {
        Bootstrap {
            wasm: Path::new("f.wasm"),
            listen_port: 8080,
            admin_port: 9901,
            agent: SocketAddr::from(([127, 0, 0, 1], 7080)),
            eds_dir: Path::new("eds"),
            pool: "default",
            access_log: Path::new("access.log"),
            plugin_config_extra: ", \"max_endpoints\": 8",
        }
    }

    #[test]
    fn fills_in_every_placeholder_and_leaves_the_rest() {
        let template = "a: ${POOL}-rr ${EDS_DIR}/${POOL}.json\nb: %REQ(X)% $x {y} ${AGENT_ADDRESS}:${AGENT_PORT}";
        let expected = "a: default-rr eds/default.json\nb: %REQ(X)% $x {y} 127.0.0.1:7080";
        assert_eq!(render(template, &values()).unwrap(), expected);
    }

    #[test]
    fn an_unknown_or_open_placeholder_is_an_error() {
        for template in ["x: ${NEW_THING}", "x: ${POOL"] {
            assert!(matches!(render(template, &values()), Err(ProcessError::Placeholder(_))));
        }
    }

    #[test]
    fn the_template_of_the_project_can_be_filled_in() {
        let template = include_str!("../../../../envoy/standalone/envoy.yaml");
        let rendered = render(template, &values()).unwrap();
        assert!(!rendered.contains("${"));
        assert!(rendered.contains("port_value: 8080"));
        assert!(rendered.contains("eds/default.json"));
    }
}
