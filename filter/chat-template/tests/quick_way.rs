//! The quick way gives the same bytes as the plain one, on real templates and on some that look into contents.

use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;
use warmroute_chat_template::{
    ChatRequest, Content, Message, Part, Template, TemplateSource, Tools, normalize_nfc,
};

const NAMES: [&str; 5] = ["qwen3", "qwen2_5", "llama3", "deepseek_v3", "gemma3"];

/// Templates that do more to contents than put them between strings.
const PRYING: [&str; 6] = [
    "{% for m in messages %}{{ m.content | trim }}{{ m.content[0] }}{{ m.content[-1] }}\
     {{ 'yes' if 'needle' in m.content }}{{ m.content.split('<cut>')[-1] }}{% endfor %}",
    "{% for m in messages %}{{ m.content | tojson }}{% endfor %}",
    "{% for m in messages %}{{ m.content | length }}{{ m.content.upper() }}{% endfor %}",
    "{% for m in messages %}{% if m.content.startswith('x') %}{{ m.content.strip('\n -') }}{% endif %}\
     {{ m.content.replace('<cut>', '') + m.content }}{% endfor %}",
    "{% for m in messages %}{% if m.content == messages[0].content %}same{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% for p in m.content %}{% if p is string %}{{ p }}{% else %}{{ p.text | trim }},\
     {% endif %}{% endfor %}{% endfor %}",
];

fn real(name: &str) -> Template {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/models").join(name);
    let text = std::fs::read(folder.join("tokenizer_config.json")).expect("run `make models`");
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let bos = config["bos_token"].as_str().unwrap_or("<s>");
    compile(config["chat_template"].as_str().unwrap(), bos)
}

fn compile(text: &str, bos: &str) -> Template {
    let special_tokens = vec![("bos_token".to_owned(), bos.to_owned())];
    Template::compile(&TemplateSource { text: text.into(), special_tokens }).unwrap()
}

static REAL: LazyLock<Vec<Template>> = LazyLock::new(|| NAMES.map(real).into());
static OTHERS: LazyLock<Vec<Template>> =
    LazyLock::new(|| PRYING.map(|text| compile(text, "<s>")).into());

type Pieces = Vec<Vec<u8>>;

fn quick(template: &Template, request: &ChatRequest<'_>) -> Option<Pieces> {
    let mut pieces = Vec::new();
    let out = &mut |piece: &[u8]| pieces.push(piece.to_vec());
    template.render_shortened(request, 0, 1 << 20, out).then_some(pieces)
}

fn plain(template: &Template, request: &ChatRequest<'_>) -> Option<Vec<u8>> {
    let mut prompt = Vec::new();
    let out = &mut |piece: &[u8]| prompt.extend_from_slice(piece);
    template.render_whole(request, 0, 1 << 20, out).ok().map(|()| prompt)
}

/// A conversation of these contents, users first.
fn chat(contents: &[Vec<String>]) -> ChatRequest<'_> {
    let content = |texts: &'_ [String]| match texts {
        [text] => Content::Text(leak(text).as_bytes()),
        _ => Content::Parts(texts.iter().map(|text| Part::Text(leak(text).as_bytes())).collect()),
    };
    let roles = ["user", "assistant"].into_iter().cycle();
    let message = |(texts, role): (&Vec<String>, &'static str)| Message {
        role: Some(role),
        content: content(texts),
        ..Message::default()
    };
    ChatRequest {
        messages: contents.iter().zip(roles).map(message).collect(),
        ..ChatRequest::default()
    }
}

/// Texts live as long as the test.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// Pieces that templates look for, ends that they strip, and stretches that are long enough to be left out.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[a-zé日 \n]{600,3000}",
        1 => "[\u{4e00}-\u{4e80}e\u{301}]{200,500}",
        1 => Just(" word".repeat(900)),
        2 => prop::sample::select(vec![
            "</think>", "<think>", "\n", " ", "\u{3000}", "<tool_response>", "</tool_response>", "x", "needle",
            "<cut>", "e\u{301}", "\u{301}", "-", "0", "1", "😀", "\u{10fffe}0\u{10fffe}",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn contents() -> impl Strategy<Value = Vec<Vec<String>>> {
    prop::collection::vec(
        prop_oneof![4 => prop::collection::vec(text(), 1..2), 1 => prop::collection::vec(text(), 0..3)],
        1..7,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn same_bytes_as_the_plain_way(contents in contents(), with_tools in any::<bool>()) {
        let mut request = chat(&contents);
        if with_tools {
            request.tools = Some(Tools::OpenAi(br#"[{"type":"function","function":{"name":"f"}}]"#));
        }
        for (index, template) in REAL.iter().chain(OTHERS.iter()).enumerate() {
            let Some(pieces) = quick(template, &request) else { continue };
            let whole = plain(template, &request);
            // Not `prop_assert_eq`: it would print the prompts.
            prop_assert!(Some(pieces.concat()) == whole, "template {index}");
            let normalised: Vec<u8> = pieces.iter().flat_map(|piece| normalize_nfc(piece).into_owned()).collect();
            prop_assert!(normalised == *normalize_nfc(&whole.unwrap_or_default()), "template {index}");
        }
    }
}

#[test]
fn long_chats_take_the_quick_way() {
    let contents: Vec<Vec<String>> =
        (0..9).map(|i| vec![format!("message {i}: ") + &"some words, ".repeat(400)]).collect();
    let request = chat(&contents);
    for (name, template) in NAMES.iter().zip(REAL.iter()) {
        let pieces = quick(template, &request);
        assert_eq!(pieces.map(|pieces| pieces.concat()), plain(template, &request), "{name}");
        assert!(quick(template, &request).is_some(), "{name}");
    }
    let taken: Vec<bool> =
        OTHERS.iter().map(|template| quick(template, &request).is_some()).collect();
    // JSON, lengths and comparisons with each other need the whole text.
    assert_eq!(taken, [true, false, false, true, false, true]);
}

#[test]
fn a_limit_cuts_both_ways_alike() {
    let contents = vec![vec!["word ".repeat(5000)]];
    let request = chat(&contents);
    for template in REAL.iter() {
        let render = |quick: bool, limit| {
            let mut prompt = Vec::new();
            let out = &mut |piece: &[u8]| prompt.extend_from_slice(piece);
            if quick {
                template.render_chat(&request, 0, limit, out).unwrap();
            } else {
                template.render_whole(&request, 0, limit, out).unwrap();
            }
            prompt
        };
        for limit in [0, 1, 50, 150, 1000, 24_990, usize::MAX] {
            assert_eq!(render(true, limit), render(false, limit), "{limit}");
            assert!(render(true, limit).len() <= limit);
        }
    }
}
