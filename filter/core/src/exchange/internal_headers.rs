//! Headers that steer routing, identity or a sidecar, and that no client may send.
//!
//! Names: llm-d-router, `pkg/epp/metadata/consts.go` and its sidecar; the aliases are older names of the same.

/// Where the filter writes its pick for Envoy's `override_host` policy.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// How names of our own begin.
const OWN: &str = "x-warmroute-";

const INTERNAL: &[&str] = &[
    "x-data-parallel-host-port",
    "x-encoder-hosts-ports",
    "x-gateway-base-model-name",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-scores",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-fairness-id",
    "x-gateway-inference-objective",
    "x-gateway-model-name",
    "x-gateway-model-name-rewrite",
    "x-kv-cache-source-host-port",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-llm-d-request-dropped-reason",
    "x-llm-d-slo-tpot-ms",
    "x-llm-d-slo-ttft-ms",
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
];

/// Whether a request header of this name must not come from a client. Envoy gives names in lower case; an
/// underscore counts as a dash, since some servers read it so.
pub(super) fn is_internal(name: &[u8]) -> bool {
    // All of them start with "x-": most headers are done after two bytes.
    if !matches!(name, [b'x' | b'X', b'-' | b'_', ..]) {
        return false;
    }
    let spells = |part: &[u8], known: &str| {
        let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        part.iter().map(plain).eq(known.bytes())
    };
    name.get(..OWN.len()).is_some_and(|start| spells(start, OWN))
        || INTERNAL.iter().any(|known| known.len() == name.len() && spells(name, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn internal_headers_are_known_in_any_spelling() {
            for name in INTERNAL {
                assert!(is_internal(name.as_bytes()), "{name}");
                assert!(is_internal(name.to_uppercase().as_bytes()), "{name}");
                assert!(is_internal(name.replace('-', "_").as_bytes()), "{name}");
                assert!(!is_internal(format!("{name}-2").as_bytes()), "{name}-2");
            }
            assert!(is_internal(b"x-warmroute-anything") && is_internal(b"X_Warmroute_Anything"));
        }

        fn a_clients_own_headers_pass() {
            for name in ["x-request-id", "authorization", "x-session-id", "x", "", "x-", "prefer", "traceparent", "x-warmroute"] {
                assert!(!is_internal(name.as_bytes()), "{name}");
            }
        }
    }
}
