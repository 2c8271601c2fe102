//! The files of a model's folder, as `transformers` and vLLM read them.

use super::error::TokenizerError;
use serde::Deserialize;
use serde_json::Value;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Bytes of `tokenizer.json` that are read at most: Gemma 3's has 33 MB.
pub const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// Bytes of each other file that are read at most.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Bytes of a model's texts at most: with all the names that it may have they go to the filter in one piece of a
/// megabyte. The longest templates have some 20 KB.
pub const MAX_TEXT_BYTES: usize = 256 << 10;
/// The files that a folder is read for.
pub const FILES: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

/// All that the filter has to know of a model to make the bytes that its engines would tokenize.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelFiles {
    /// Jinja source of the chat template, if the model has one.
    pub template: Option<String>,
    /// The template for requests with tools, if it has one of its own.
    pub tool_template: Option<String>,
    /// Variables of the template: `bos_token`, `eos_token` and so on, by name.
    pub special_tokens: Vec<(String, String)>,
    /// What goes before the prompt of `/v1/completions`; chats have nothing before the template.
    pub completion_prefix: String,
    /// The tokenizer normalises text to NFC.
    pub nfc: bool,
    /// Identity of all this and the tokenizer, never 0.
    pub stream: u64,
}

impl ModelFiles {
    /// Bytes of all its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let Self { template, tool_template, special_tokens, completion_prefix, .. } = self;
        let templates = [template, tool_template].into_iter().flatten().map(String::len);
        let tokens = special_tokens.iter().map(|(name, value)| name.len() + value.len());
        templates.chain(tokens).chain([completion_prefix.len()]).sum()
    }
}

/// The texts of a model's folder.
#[derive(Debug, Clone, Default)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// `tokenizer.json`.
    pub tokenizer: String,
    /// `tokenizer_config.json`.
    pub config: Option<String>,
    /// `chat_template.jinja`, which goes before the template in `tokenizer_config.json`.
    pub template: Option<String>,
}

impl Folder {
    /// Reads it.
    ///
    /// # Errors
    /// If `tokenizer.json` is not there, or a file is too large or no UTF-8.
    pub fn read(path: &Path) -> Result<Self, TokenizerError> {
        let [tokenizer, config, template] = FILES.map(|name| path.join(name));
        Ok(Self {
            path: path.to_owned(),
            tokenizer: read(&tokenizer, MAX_TOKENIZER_BYTES)?,
            config: read_if_there(&config)?,
            template: read_if_there(&template)?,
        })
    }

    pub(super) fn malformed(&self, file: &str, why: impl std::fmt::Display) -> TokenizerError {
        let why = why.to_string().chars().take(300).collect();
        TokenizerError::Malformed { path: self.path.join(file), why }
    }
}

fn read(path: &Path, limit: u64) -> Result<String, TokenizerError> {
    let unreadable = |why: String| TokenizerError::Unreadable { path: path.to_owned(), why };
    let meta = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    // Before it is opened: to open a pipe waits for a writer.
    if !meta.is_file() {
        return Err(unreadable("not a regular file".into()));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(TokenizerError::TooLarge { path: path.to_owned(), limit });
    }
    String::from_utf8(bytes).map_err(|_| TokenizerError::Malformed {
        path: path.to_owned(),
        why: "not UTF-8 text".into(),
    })
}

fn read_if_there(path: &Path) -> Result<Option<String>, TokenizerError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        _ => read(path, MAX_FILE_BYTES).map(Some),
    }
}

/// Names of special tokens that templates may use.
const SPECIAL: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Special tokens beyond those that are taken at most.
const MAX_EXTRA: usize = 64;

/// What matters of `tokenizer_config.json`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TokenizerConfig {
    /// Whether completions begin with `bos_token`.
    pub add_bos_token: Option<bool>,
    /// Whether completions end with `eos_token`.
    pub add_eos_token: Option<bool>,
    chat_template: Option<ChatTemplate>,
    extra_special_tokens: Option<Value>,
    #[serde(flatten)]
    rest: std::collections::BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ChatTemplate {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Clone, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl TokenizerConfig {
    /// Reads the folder's. All defaults if there is none.
    ///
    /// # Errors
    /// If it is not JSON of the known shape.
    pub fn parse(folder: &Folder) -> Result<Self, TokenizerError> {
        let Some(text) = &folder.config else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| folder.malformed(FILES[1], error))
    }

    /// The chat template.
    #[must_use]
    pub fn template(&self, folder: &Folder) -> Option<String> {
        if folder.template.is_some() {
            return folder.template.clone();
        }
        match self.chat_template.as_ref()? {
            ChatTemplate::One(template) => Some(template.clone()),
            ChatTemplate::Named(templates) => named(templates, "default"),
        }
    }

    /// The chat template for requests with tools, if that is another one.
    #[must_use]
    pub fn tool_template(&self, folder: &Folder) -> Option<String> {
        match self.chat_template.as_ref()? {
            ChatTemplate::Named(templates) if folder.template.is_none() => {
                named(templates, "tool_use")
            }
            _ => None,
        }
    }

    /// Special tokens as the template's variables, without those that are null.
    #[must_use]
    pub fn special_tokens(&self) -> Vec<(String, String)> {
        let known = SPECIAL.iter().filter_map(|name| Some(((*name).to_owned(), self.token(name)?)));
        // A list has no names to use them by.
        let extra = self.extra_special_tokens.as_ref().and_then(Value::as_object);
        let extra = extra.into_iter().flatten().take(MAX_EXTRA);
        let mut tokens: Vec<_> = known.collect();
        for (name, value) in extra.filter(|(name, _)| !SPECIAL.contains(&name.as_str())) {
            tokens.extend(content(value).map(|value| (name.clone(), value)));
        }
        tokens
    }

    /// `bos_token`, if there is one.
    #[must_use]
    pub fn bos_token(&self) -> Option<String> {
        self.token("bos_token")
    }

    fn token(&self, name: &str) -> Option<String> {
        self.rest.get(name).and_then(content)
    }
}

fn named(templates: &[NamedTemplate], name: &str) -> Option<String> {
    templates.iter().find(|one| one.name == name).map(|one| one.template.clone())
}

/// A token is written as a string, or as an object with its `content`.
fn content(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
}
