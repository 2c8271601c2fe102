//! What the ledger is where the operator says nothing: which file, and for how long.

use std::path::PathBuf;
use std::time::Duration;

/// How long records are kept: a quarter, so that a bill can be questioned.
pub const KEEP: Duration = Duration::from_secs(90 * 86_400);

/// Time between two looks for records that are too old.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// `usage.sqlite` in `$STATE_DIRECTORY` (systemd's `StateDirectory=`), else in `warmroute` under
/// `$XDG_STATE_HOME`, else under `~/.local/state`; `None` without any of these. `variable` reads the
/// environment.
pub fn usual_file(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd gives several, with colons between.
    let first = |folders: PathBuf| -> Option<PathBuf> {
        folders.to_str()?.split(':').next().map(PathBuf::from)
    };
    let folder = set("STATE_DIRECTORY")
        .and_then(first)
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("warmroute")))
        .or_else(|| Some(set("HOME")?.join(".local/state/warmroute")))?;
    Some(folder.join("usage.sqlite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_special_place_wins() {
        let (systemd, xdg, home) =
            (("STATE_DIRECTORY", "/s:/t"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h"));
        let cases = [
            (vec![systemd, xdg, home], Some("/s/usage.sqlite")),
            (vec![xdg, home], Some("/x/warmroute/usage.sqlite")),
            (vec![home], Some("/h/.local/state/warmroute/usage.sqlite")),
            (vec![("HOME", "")], None),
            (vec![], None),
        ];
        for (set, expected) in cases {
            let variable = |name: &str| {
                set.iter().find(|(each, _)| *each == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(usual_file(variable), expected.map(PathBuf::from), "{set:?}");
        }
    }
}
