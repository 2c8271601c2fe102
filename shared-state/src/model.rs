//! What agent and filter both know of a model whose prompts can be told byte for byte.

use crate::wire::{Reader, WireError, Writer};

/// Names that one model may have, adapters included: what is beyond is cut off.
pub const MAX_NAMES: usize = 1024;

/// A model with its chat template. Sent whole whenever a field changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelRecord {
    /// The name that its engines serve it by.
    pub name: String,
    /// Other names that clients may use for it.
    pub aliases: Vec<String>,
    /// LoRA adapters on it, each a model name of its own to clients.
    pub adapters: Vec<String>,
    /// Identity of its rendered byte stream, never 0: another template or tokenizer is another
    /// stream, and nothing is shared between the two.
    pub stream: u64,
    /// Jinja source of the chat template; empty if it has none.
    pub template: String,
    /// The template for requests with tools, where the model has one of its own.
    pub tool_template: Option<String>,
    /// `bos_token`, `eos_token` … as the template's variables.
    pub special_tokens: Vec<(String, String)>,
    /// What the tokenizer puts before the prompt of a completions request.
    pub completion_prefix: String,
    /// The tokenizer normalises text to NFC first.
    pub nfc: bool,
}

impl ModelRecord {
    /// The name that `name` goes by in the prefix chain: engines key their blocks by adapter, and not by
    /// alias. `None` if it is not a name of this model.
    #[must_use]
    pub fn chain_name(&self, name: &str) -> Option<&str> {
        if name == self.name || self.aliases.iter().any(|alias| alias == name) {
            return Some(&self.name);
        }
        self.adapters.iter().find(|adapter| *adapter == name).map(String::as_str)
    }

    /// Appends the record.
    pub fn write(&self, w: &mut Writer) {
        w.text(&self.name);
        for names in [&self.aliases, &self.adapters] {
            let names = names.get(..MAX_NAMES).unwrap_or(names);
            w.u16(u16::try_from(names.len()).unwrap_or(u16::MAX));
            names.iter().for_each(|name| w.text(name));
        }
        w.u64(self.stream);
        w.text(&self.template);
        w.u8(u8::from(self.tool_template.is_some()));
        if let Some(template) = &self.tool_template {
            w.text(template);
        }
        let tokens = self.special_tokens.get(..MAX_NAMES).unwrap_or(&self.special_tokens);
        w.u16(u16::try_from(tokens.len()).unwrap_or(u16::MAX));
        for (name, value) in tokens {
            w.text(name);
            w.text(value);
        }
        w.text(&self.completion_prefix);
        w.u8(u8::from(self.nfc));
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is cut, or a text is no UTF-8.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let name = r.text()?.to_owned();
        let mut lists = [Vec::new(), Vec::new()];
        for names in &mut lists {
            for _ in 0..r.u16()? {
                names.push(r.text()?.to_owned());
            }
        }
        let [aliases, adapters] = lists;
        let stream = r.u64()?;
        let template = r.text()?.to_owned();
        let tool_template = if r.u8()? == 0 { None } else { Some(r.text()?.to_owned()) };
        let mut special_tokens = Vec::new();
        for _ in 0..r.u16()? {
            special_tokens.push((r.text()?.to_owned(), r.text()?.to_owned()));
        }
        let completion_prefix = r.text()?.to_owned();
        let nfc = r.u8()? != 0;
        Ok(Self {
            name,
            aliases,
            adapters,
            stream,
            template,
            tool_template,
            special_tokens,
            completion_prefix,
            nfc,
        })
    }
}

#[cfg(test)]
pub(crate) fn sample() -> ModelRecord {
    ModelRecord {
        name: "tiny".into(),
        aliases: vec!["small".into()],
        adapters: vec!["lora-a".into(), "lora-b".into()],
        stream: 77,
        template: "{{ messages[0].content }}".repeat(3000),
        tool_template: Some("{{ tools }}".into()),
        special_tokens: vec![("bos_token".into(), "<s>".into())],
        completion_prefix: "<s>".into(),
        nfc: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn a_record_comes_back_as_written() {
            for model in [sample(), ModelRecord::default()] {
                let mut w = Writer::new();
                model.write(&mut w);
                let bytes = w.into_bytes();
                let mut r = Reader::new(&bytes);
                assert_eq!(ModelRecord::read(&mut r), Ok(model));
                assert_eq!(r.finish(), Ok(()));
                for len in 0..bytes.len().min(200) {
                    assert!(ModelRecord::read(&mut Reader::new(&bytes[..len])).is_err());
                }
            }
        }

        fn aliases_share_their_models_prefixes_and_adapters_do_not() {
            let model = sample();
            for (name, chain) in [
                ("tiny", Some("tiny")),
                ("small", Some("tiny")),
                ("lora-a", Some("lora-a")),
                ("lora-c", None),
                ("", None),
            ] {
                assert_eq!(model.chain_name(name), chain, "{name}");
            }
        }
    }
}
