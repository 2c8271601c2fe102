use super::*;
use crate::kv_index::Encode as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::path::PathBuf;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn real(name: &str) -> Tokenizer {
    let folder = root().join(".tools/models").join(name);
    assert!(folder.join("version").exists(), "no tokenizer of {name}: run `make models`");
    Tokenizer::load(&folder).unwrap()
}

fn bytes(tokenizer: &Tokenizer, text: &str) -> Vec<u8> {
    let mut ids = Vec::new();
    assert!(tokenizer.encoder.encode(text, &mut ids));
    ids.iter().flat_map(|id| tokenizer.tokens.get(*id).unwrap().to_vec()).collect()
}

fn special(tokenizer: &Tokenizer, name: &str) -> Option<String> {
    let tokens = &tokenizer.files.special_tokens;
    tokens.iter().find(|(token, _)| token == name).map(|(_, value)| value.clone())
}

/// Words, scripts, marks, spaces and anything else, in any order.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-zA-Z]{1,12}",
        "[0-9]{1,7}",
        "[ \t\n\r]{1,9}",
        "[!-/:-@\\[-`{-~]{1,5}",
        "[äöüßéèçñøÅ]{1,4}",
        "[\u{300}-\u{330}a-e]{1,6}",
        "[一-龥ぁ-んァ-ヶ가-힣]{1,6}",
        "[\u{1f300}-\u{1f6ff}\u{200d}\u{fe0f}]{1,4}",
        "\\PC{1,8}",
        any::<char>().prop_map(String::from),
        Just("<|im_start|>".to_owned()),
        Just("<|eot_id|>".to_owned()),
        Just("<start_of_turn>".to_owned()),
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn comes_back(name: &str) {
    let tokenizer = real(name);
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) });
    let sentence_piece = name == "gemma3";
    runner
        .run(&text(), |text| {
            let mut expected = text.clone();
            if tokenizer.files.nfc {
                // Between special tokens only, as the tokenizer does it.
                let parts: Vec<String> = text
                    .split_inclusive("<|im_start|>")
                    .map(|part| match part.strip_suffix("<|im_start|>") {
                        Some(head) => normalized(&tokenizer, head) + "<|im_start|>",
                        None => normalized(&tokenizer, part),
                    })
                    .collect();
                expected = parts.concat();
            }
            if sentence_piece {
                expected = expected.replace('▁', " ");
            }
            prop_assert_eq!(String::from_utf8(bytes(&tokenizer, &text)).unwrap(), expected);
            Ok(())
        })
        .unwrap();
}

fn normalized(tokenizer: &Tokenizer, text: &str) -> String {
    tokenizer.encoder.normalized(text).unwrap()
}

#[test]
fn qwen3_comes_back() {
    comes_back("qwen3");
}

#[test]
fn qwen2_5_comes_back() {
    comes_back("qwen2_5");
}

#[test]
fn llama3_comes_back() {
    comes_back("llama3");
}

#[test]
fn gptoss_comes_back() {
    comes_back("gptoss");
}

#[test]
fn deepseek_v3_comes_back() {
    comes_back("deepseek_v3");
}

#[test]
fn gemma3_comes_back() {
    comes_back("gemma3");
}

#[test]
fn what_real_models_files_say() {
    // Name, NFC, template, before completions, bos, eos.
    let deepseek = "<｜begin▁of▁sentence｜>";
    let cases = [
        ("qwen3", true, true, "", None, "<|im_end|>"),
        ("llama3", false, true, "", Some("<|begin_of_text|>"), "<|end_of_text|>"),
        ("gptoss", false, false, "", Some("<|startoftext|>"), "<|return|>"),
        ("deepseek_v3", false, true, deepseek, Some(deepseek), "<｜end▁of▁sentence｜>"),
        ("gemma3", false, true, "<bos>", Some("<bos>"), "<end_of_turn>"),
    ];
    let mut streams = Vec::new();
    for (name, nfc, template, prefix, bos, eos) in cases {
        let tokenizer = real(name);
        let files = &tokenizer.files;
        assert_eq!(files.nfc, nfc, "{name}");
        assert_eq!(files.template.is_some(), template, "{name}");
        assert_eq!(files.completion_prefix, prefix, "{name}");
        assert_eq!(special(&tokenizer, "bos_token").as_deref(), bos, "{name}");
        assert_eq!(special(&tokenizer, "eos_token").as_deref(), Some(eos), "{name}");
        assert_ne!(files.stream, 0);
        streams.push(files.stream);
    }
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), cases.len());
}

fn fixture() -> Folder {
    let path = root().join("tests/engine-sim/assets/tokenizer.json");
    Folder {
        path: "model".into(),
        tokenizer: std::fs::read_to_string(path).unwrap(),
        ..Folder::default()
    }
}

fn with_config(config: &str) -> Folder {
    Folder { config: Some(config.to_owned()), ..fixture() }
}

fn load(folder: &Folder) -> Result<Tokenizer, String> {
    Tokenizer::from_folder(folder).map_err(|error| error.to_string())
}

#[test]
fn texts_that_the_filter_would_not_take_are_no_models() {
    let of = |bytes: usize| load(&Folder { template: Some("x".repeat(bytes)), ..fixture() });
    assert!(of(files::MAX_TEXT_BYTES / 2).is_ok());
    let error = of(files::MAX_TEXT_BYTES + 1).err().unwrap();
    assert!(
        error.starts_with("model: templates and special tokens come to 262145 bytes"),
        "{error}"
    );
}

#[test]
fn unknown_ids_have_no_bytes() {
    let tokenizer = load(&fixture()).unwrap();
    let len = u32::try_from(tokenizer.tokens.len()).unwrap();
    assert_eq!((tokenizer.tokens.get(len), tokenizer.tokens.get(u32::MAX)), (None, None));
    assert_eq!(tokenizer.tokens.get(len - 1).map(<[u8]>::is_empty), Some(false));
}

#[test]
fn templates_by_name_and_by_file() {
    let named = r#"{"chat_template": [{"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]}"#;
    let file = Folder { template: Some("F".into()), ..with_config(named) };
    let cases = [
        (fixture(), None, None),
        (with_config("{}"), None, None),
        (with_config(r#"{"chat_template": "A"}"#), Some("A"), None),
        (with_config(named), Some("D"), Some("T")),
        (file, Some("F"), None),
    ];
    for (folder, template, tools) in cases {
        let files = load(&folder).unwrap().files;
        let found = (files.template.as_deref(), files.tool_template.as_deref());
        assert_eq!(found, (template, tools));
    }
}

#[test]
fn special_tokens_are_strings_or_objects() {
    let config = r#"{"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null,
        "extra_special_tokens": {"image_token": "<i>"}, "tokenizer_class": "X"}"#;
    let files = load(&with_config(config)).unwrap().files;
    let named: Vec<_> =
        files.special_tokens.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(named, [("bos_token", "<b>"), ("eos_token", "<e>"), ("image_token", "<i>")]);
}

#[test]
fn the_stream_is_another_one_when_anything_is() {
    let base = load(&fixture()).unwrap().files.stream;
    assert_eq!(load(&with_config("{}")).unwrap().files.stream, base);
    for config in [
        r#"{"chat_template": "A"}"#,
        r#"{"bos_token": "<|im_start|>"}"#,
        r#"{"bos_token": "<|im_start|>", "add_bos_token": true}"#,
    ] {
        assert_ne!(load(&with_config(config)).unwrap().files.stream, base, "{config}");
    }
    let mut other = fixture();
    other.tokenizer.push('\n');
    assert_ne!(load(&other).unwrap().files.stream, base);
}

#[test]
fn tokenizers_that_lose_bytes_are_refused() {
    let change = |from: &str, to: &str| {
        let text = fixture().tokenizer;
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json[from] = serde_json::from_str(to).unwrap();
        Folder { tokenizer: json.to_string(), ..fixture() }
    };
    let cases = [
        (change("normalizer", r#"{"type": "Lowercase"}"#), "`Lowercase` changes text"),
        (
            change("normalizer", r#"{"type": "Sequence", "normalizers": [{"type": "NFKC"}]}"#),
            "`NFKC` changes",
        ),
        (
            change("decoder", r#"{"type": "WordPiece", "prefix": "", "cleanup": true}"#),
            "(WordPiece)",
        ),
        (
            change(
                "pre_tokenizer",
                r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#,
            ),
            "plain text: its ids stand for another text",
        ),
        (
            change("decoder", r#"{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}"#),
            "another text",
        ),
    ];
    for (folder, expected) in cases {
        let Err(error) = load(&folder) else { panic!("accepted: {expected}") };
        assert!(error.starts_with("this tokenizer cannot be mapped to bytes: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn files_that_are_missing_or_broken_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = |f: &Path| Tokenizer::load(f).err().unwrap().to_string();
    let missing = error(folder.path());
    assert!(missing.contains("tokenizer.json cannot be read"), "{missing}");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("tokenizer.json", b"{\"version\": 1");
    assert!(error(folder.path()).contains("tokenizer.json is not understood"));
    write("tokenizer.json", fixture().tokenizer.as_bytes());
    write("tokenizer_config.json", b"[1]");
    assert!(error(folder.path()).contains("tokenizer_config.json is not understood"));
    write("tokenizer_config.json", b"{}");
    write("chat_template.jinja", b"\xff");
    assert!(error(folder.path()).contains("not UTF-8"));
    write("chat_template.jinja", &vec![b'x'; files::MAX_FILE_BYTES as usize + 1]);
    assert!(error(folder.path()).contains("larger than 4194304 bytes"));
    write("chat_template.jinja", b"{{ messages }}");
    assert_eq!(Tokenizer::load(folder.path()).unwrap().files.template.unwrap(), "{{ messages }}");
}
