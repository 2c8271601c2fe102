//! The simulated model's folder, as one finds it on a hub: what others need to turn this engine's
//! token ids into bytes and its chats into prompts.

use std::io::Write as _;
use std::path::Path;

use crate::tokens;

/// The chat template; [`tokens::template`] and [`tokens::tools`] render by it.
pub const CHAT_TEMPLATE: &str = include_str!("../assets/chat_template.jinja");

const TOKENIZER_CONFIG: &str = include_str!("../assets/tokenizer_config.json");

/// Writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` into `folder`, which
/// is made if it is missing.
pub fn write(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, content) in [
        ("tokenizer.json", tokens::TOKENIZER_JSON),
        ("tokenizer_config.json", TOKENIZER_CONFIG.as_bytes()),
        ("chat_template.jinja", CHAT_TEMPLATE.as_bytes()),
    ] {
        std::fs::File::create(folder.join(name))?.write_all(content)?;
    }
    Ok(())
}
