//! The quick way gives the same bytes as the plain one, on real templates and on some that look into contents.

use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;
use warmroute_chat_template::{
    ChatRequest, Content, Message, Part, Template, TemplateSource, Tools, normalize_nfc,
};

const NAMES: [&str; 5] = ["qwen3", "qwen2_5", "llama3", "deepseek_v3", "gemma3"];

/// Templates that do more to contents than put them between strings.
const PRYING: [&str; 21] = [
    "{% for m in messages %}{{ m.content | trim }}{{ m.content[0] }}{{ m.content[-1] }}\
     {{ 'yes' if 'needle' in m.content }}{{ m.content.split('<cut>')[-1] }}{% endfor %}",
    "{% for m in messages %}{{ m.content | tojson }}{% endfor %}",
    "{% for m in messages %}{{ m.content | length }}{{ m.content.upper() }}{% endfor %}",
    "{% for m in messages %}{% if m.content.startswith('x') %}{{ m.content.strip('\n -') }}{% endif %}\
     {{ m.content.replace('<cut>', '') + m.content }}{% endfor %}",
    "{% for m in messages %}{% if m.content == messages[0].content %}same{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% for p in m.content %}{% if p is string %}{{ p }}{% else %}{{ p.text | trim }},\
     {% endif %}{% endfor %}{% endfor %}",
    // Constants that lie across texts, or have texts inside.
    "{% for m in messages %}{% set c = '<cu' ~ m.content ~ 'dle' %}{{ c.startswith('<cut>') }}{{ c.endswith('needle') }}\
     {{ c.replace('<cut>', '!') }}{{ 'needle' in c }}{{ c == '<cutneedle' }}{{ m.content in ['use', 'x'] }}{% endfor %}",
    "{% for m in messages %}{{ m.content == m.role }}{{ ('us' ~ m.content) != m.role }}{{ m.content is eq('x') }}\
     {{ m.content.strip('-') }}{{ m.content.startswith(('ne', '0')) }}{% endfor %}",
    "{% for m in messages %}{{ (messages[0].content ~ m.content).split('x')[-1].lstrip('\n') }}|\
     {{ (messages[0].content ~ m.content) | trim }}{{ strftime_now('%d %b %Y') }}{% endfor %}",
    // Lists of texts, written as Python would: GLM-4.1V does that to what is not the user's.
    "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% else %}\
     {{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}{{ m }}{{ [m.content] ~ '' }}{% endfor %}",
    "{{ (messages | map(attribute='content') | first)[:3] }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "{% set ns = namespace(sys=messages[0].content) %}{{ ns.sys[0] == 'x' }}{{ messages[0].content }}",
    "{% for m in messages %}{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}",
    "{% for m in messages | selectattr('content', 'lt', 'm') %}{{ m.content }}{% endfor %}",
    "{{ (messages | map(attribute='content') | list).count('x') }}{{ messages[0].content }}",
    "{% set ns = namespace(role='') %}{% for m in messages %}{{ m.content == ns.role }}{% set ns.role = m.content %}\
     {{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m.content | join('0') }}{{ '0'.join(m.content) }}{% endfor %}",
    "{% for m in messages | selectattr('content.0', 'equalto', 'x') %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ 1 in m.content }}{{ m.content }}{{ m.content | upper }}{% endfor %}",
    "{% for m in messages %}{% set x = {'body': m.content} %}{% for c in x.body %}{{ '!' if c == 'x' }}{{ c }}\
     {% endfor %}{% endfor %}",
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

/// By the conversation's shape: the first time, and once the shape is known.
fn planned(template: &Template, request: &ChatRequest<'_>) -> Option<[Pieces; 2]> {
    let render = |_| {
        let mut pieces = Vec::new();
        let out = &mut |piece: &[u8]| pieces.push(piece.to_vec());
        template.render_planned(request, 0, 1 << 20, out).then_some(pieces)
    };
    let [first, again] = [0, 1].map(render);
    assert_eq!(first.is_some(), again.is_some());
    Some([first?, again?])
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

/// Short texts of what could be a part of a template's constants, or be stripped.
fn short_contents() -> impl Strategy<Value = Vec<Vec<String>>> {
    let piece = prop_oneof![
        4 => "[A-Za-z]{1,8}",
        2 => prop::sample::select(vec![
            "</think>", "<think>", "\n", " ", "\u{3000}", "<tool_response>", "</tool_response>", "<cut>", "needle",
            "e\u{301}", "\u{301}", "日", "-", "0", "1", "<", ">", "think>", "</think", "use", "user", "x", "t>", "<c",
            "nee", "ne", "le", "\u{10fffe}0\u{10fffe}",
        ]).prop_map(str::to_owned),
        1 => "[a-zé ]{100,300}",
    ];
    let text = prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat());
    prop::collection::vec(
        prop_oneof![
            5 => text.clone().prop_map(|text| vec![text]),
            1 => Just(vec![String::new()]),
            1 => prop::collection::vec(text, 0..3),
        ],
        1..5,
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

    #[test]
    fn same_bytes_by_shape(
        contents in short_contents(),
        others in short_contents(),
        with_tools in any::<bool>(),
        system in any::<bool>(),
    ) {
        for contents in [contents, others] {
            let mut request = chat(&contents);
            if with_tools {
                request.tools = Some(Tools::OpenAi(br#"[{"type":"function","function":{"name":"f"}}]"#));
            }
            if system && let Some(first) = request.messages.first_mut() {
                first.role = Some("system");
            }
            for (index, template) in REAL.iter().chain(OTHERS.iter()).enumerate() {
                let Some(both) = planned(template, &request) else { continue };
                let whole = plain(template, &request);
                for pieces in both {
                    prop_assert!(Some(pieces.concat()) == whole, "template {index}: {contents:?}");
                    let normalised: Vec<u8> =
                        pieces.iter().flat_map(|piece| normalize_nfc(piece).into_owned()).collect();
                    prop_assert!(
                        normalised == *normalize_nfc(whole.as_deref().unwrap_or_default()),
                        "template {index}: {contents:?}"
                    );
                }
            }
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
    let untaken: Vec<usize> = (0..taken.len()).filter(|index| !taken[*index]).collect();
    assert_eq!(untaken, [1, 2, 4, 9, 10, 11, 13, 14, 16, 17, 19, 20]);
}

#[test]
fn plain_chats_are_rendered_by_their_shape() {
    for contents in
        [vec!["Why?", "Since it is so.", "Ah."], vec!["Else?", "No: \"not at all\"", "5 < 6"]]
    {
        let contents: Vec<_> = contents.into_iter().map(|text| vec![text.to_owned()]).collect();
        let request = chat(&contents);
        for (name, template) in NAMES.iter().zip(REAL.iter()) {
            let both = planned(template, &request).unwrap_or_else(|| panic!("{name}"));
            for pieces in both {
                assert_eq!(Some(pieces.concat()), plain(template, &request), "{name}");
            }
        }
    }
}

#[test]
fn what_is_more_than_texts_is_not_rendered_by_its_shape() {
    let contents = [vec!["Why?".to_owned()], vec!["So.".to_owned()], vec!["Ah.".to_owned()]];
    let changes: [fn(&mut ChatRequest<'_>); 5] = [
        |request| request.messages[1].reasoning = Some("since"),
        |request| request.messages[0].name = Some("Ann"),
        |request| request.documents = Some(b"[]"),
        |request| request.continue_final_message = Some(true),
        |request| request.messages[2].content = Content::Text(b"</think>"),
    ];
    for change in changes {
        let mut request = chat(&contents);
        assert!(planned(&REAL[0], &request).is_some());
        change(&mut request);
        assert!(planned(&REAL[0], &request).is_none());
    }
}

#[test]
fn another_day_tools_or_arguments_are_another_shape() {
    let contents = [vec!["Why?".to_owned()]];
    let dated =
        compile("{{ strftime_now('%d') }}{{ messages[0].content }}{{ x }}{{ tools | tojson }}", "");
    let mut request = chat(&contents);
    let render = |request: &ChatRequest<'_>, clock| {
        let mut prompt = Vec::new();
        let out = &mut |piece: &[u8]| prompt.extend_from_slice(piece);
        assert!(dated.render_planned(request, clock, 1 << 20, out));
        String::from_utf8(prompt).unwrap()
    };
    for day in 0..3 {
        assert_eq!(render(&request, day * 86_400), format!("0{}Why?null", day + 1));
    }
    request.template_arguments = Some(br#"{"x":"y"}"#);
    assert_eq!(render(&request, 0), "01Why?ynull");
    request.tools = Some(Tools::OpenAi(br#"[{"type":"function","function":{"name":"f"}}]"#));
    assert!(render(&request, 0).starts_with("01Why?y[{"));
    request.template_arguments = None;
    assert!(render(&request, 0).starts_with("01Why?[{"));
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
