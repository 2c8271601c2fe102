//! Who picks the engine.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

/// One way to pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Envoy's round robin.
    RoundRobin,
    /// The engine with the fewest requests, of all; Envoy's.
    LeastRequest,
    /// Envoy's Maglev over the header `x-session-id`.
    SessionHash,
    /// The filter, which remembers its picks.
    Warmroute,
    /// The filter, which follows the engines' KV events.
    WarmroutePrecise,
}

impl Target {
    /// All, in the order in which they are run.
    pub const ALL: [Self; 5] = [
        Self::RoundRobin,
        Self::LeastRequest,
        Self::SessionHash,
        Self::Warmroute,
        Self::WarmroutePrecise,
    ];

    /// As in the report and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastRequest => "least-request",
            Self::SessionHash => "session-hash",
            Self::Warmroute => "warmroute",
            Self::WarmroutePrecise => "warmroute-precise",
        }
    }

    /// Whether it is the filter.
    #[must_use]
    pub fn is_warmroute(self) -> bool {
        self.policy().is_none()
    }

    /// Envoy's own policy, as a `typed_extension_config`; `None` = the filter picks.
    #[must_use]
    pub fn policy(self) -> Option<Value> {
        let (name, message, more) = match self {
            Self::RoundRobin => ("round_robin", "RoundRobin", None),
            Self::LeastRequest => {
                ("least_request", "LeastRequest", Some(("selection_method", "FULL_SCAN")))
            }
            Self::SessionHash => ("maglev", "Maglev", None),
            Self::Warmroute | Self::WarmroutePrecise => return None,
        };
        let package = format!("envoy.extensions.load_balancing_policies.{name}.v3");
        let mut config = json!({"@type": format!("type.googleapis.com/{package}.{message}")});
        if let Some((field, value)) = more {
            config[field] = value.into();
        }
        let name = format!("envoy.load_balancing_policies.{name}");
        Some(json!({"name": name, "typed_config": config}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_report_and_lead_back() {
        for target in Target::ALL {
            assert_eq!(serde_json::to_value(target).unwrap(), target.name());
            assert_eq!(Target::from_str(target.name(), false), Ok(target));
        }
    }
}
