//! Warmroute's own bootstrap with something else in the filter's place, so that nothing but the filter differs.

use anyhow::{Context as _, Result};

const FILTER: (&str, &str) = (
    "          - name: warmroute\n            typed_config:",
    "          - name: envoy.filters.http.router",
);
/// Its route switches the filter off, which must be there for that.
const ROUTE: (&str, &str) = (
    "              # The same engines without Warmroute",
    "              # The filter chose one of several pools",
);

/// Puts `filter` in the place of the filter: nothing, or another one with its line end.
///
/// # Errors
/// When the template has moved on and a place is not found.
pub(super) fn replace_filter(bootstrap: &str, filter: &str) -> Result<String> {
    let without = replace(bootstrap, FILTER, filter).context("where is the filter?")?;
    replace(&without, ROUTE, "").context("where is the route /rr/?")
}

fn replace(text: &str, (from, to): (&str, &str), by: &str) -> Option<String> {
    let (before, rest) = text.split_once(from)?;
    let (_, after) = rest.split_once(to)?;
    Some(format!("{before}{by}{to}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_filter_is_left_in_the_projects_own_template() {
        let template = include_str!("../../../../envoy/standalone/envoy.yaml");
        let plain = replace_filter(template, "          - name: other\n").unwrap();
        for gone in ["filters.http.wasm", "typed_per_filter_config", "prefix: /rr/", "vm_config"] {
            assert!(template.contains(gone) && !plain.contains(gone), "{gone}");
        }
        for left in ["override_host", "- name: other\n          - name: envoy.filters.http.router"]
        {
            assert!(plain.contains(left), "{left}");
        }
        assert!(replace_filter("no bootstrap", "").is_err());
    }
}
