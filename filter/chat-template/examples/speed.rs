//! How long rendering takes, the quick and the plain way: `cargo run --release --example speed` after `make models`.
//! Chats of about 220 KB; microseconds each, the median of many.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};
use warmroute_chat_template::{ChatRequest, Content, Message, Template, TemplateSource};

fn main() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/models");
    println!("{:14} {:>9} {:>9} {:>9}", "template", "messages", "quick µs", "plain µs");
    for name in ["qwen3", "qwen2_5", "llama3", "deepseek_v3", "gemma3"] {
        let text = std::fs::read(models.join(name).join("tokenizer_config.json"));
        let config: serde_json::Value =
            serde_json::from_slice(&text.expect("run `make models`")).expect("JSON");
        let source = TemplateSource {
            text: config["chat_template"].as_str().unwrap_or_default().into(),
            special_tokens: vec![("bos_token".into(), "<s>".into())],
        };
        let template = Template::compile(&source).expect("a template");
        for messages in [3, 41, 401] {
            let text =
                "The quick brown fox jumps over the lazy dog, 3 < 4. ".repeat(4200 / messages);
            let request = chat(messages, &text);
            let quick = median(|| {
                let mut bytes = 0;
                assert!(
                    template.render_shortened(&request, 0, usize::MAX, &mut |p| bytes += p.len())
                        || messages > 200
                );
                bytes
            });
            let plain = median(|| {
                let mut bytes = 0;
                let done =
                    template.render_whole(&request, 0, usize::MAX, &mut |p| bytes += p.len());
                assert_eq!(done, Ok(()));
                bytes
            });
            let (quick, plain) = (quick.as_secs_f64() * 1e6, plain.as_secs_f64() * 1e6);
            println!("{name:14} {messages:9} {quick:9.0} {plain:9.0}");
        }
    }
}

fn chat(messages: usize, text: &str) -> ChatRequest<'_> {
    let roles = ["user", "assistant"].into_iter().cycle();
    let message = |role| Message {
        role: Some(role),
        content: Content::Text(text.as_bytes()),
        ..Message::default()
    };
    ChatRequest { messages: roles.take(messages).map(message).collect(), ..ChatRequest::default() }
}

fn median(mut run: impl FnMut() -> usize) -> Duration {
    let mut times: Vec<Duration> = (0..301)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(run());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
