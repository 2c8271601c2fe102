//! The APIs besides chat, completions and messages.

use super::*;
use PathClass::{Conversations, Embeddings, Generate, Images, Responses, SglangGenerate};

fn scan(path: PathClass, body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(path, [body.as_bytes()])
}

fn missing(field: &'static str) -> RequestError {
    RequestError::MissingInput { field }
}

fn bad(field: &'static str) -> RequestError {
    RequestError::BadInput { field }
}

crate::tests! {
    fn what_must_be_there() {
        for (path, body, error) in [
            (Embeddings, r#"{"model":"m"}"#, missing("input")),
            (Embeddings, r#"{"model":"m","input":null}"#, missing("input")),
            (Embeddings, r#"{"model":"m","input":[1,"a"]}"#, bad("input")),
            (Embeddings, r#"{"model":"m","input":{}}"#, bad("input")),
            (Embeddings, r#"{"input":"x"}"#, RequestError::MissingModel),
            (Responses, r#"{"model":"m"}"#, missing("input")),
            (Responses, r#"{"model":"m","input":"x","input":null}"#, missing("input")),
            (Responses, r#"{"input":"x"}"#, RequestError::MissingModel),
            (Conversations, r#"{"model":"m"}"#, missing("items")),
            (Conversations, r#"{"model":"m","items":[]}"#, missing("items")),
            (Conversations, r#"{"model":"m","items":"x"}"#, bad("items")),
            (Conversations, r#"{"items":[{}]}"#, RequestError::MissingModel),
            (Images, r#"{"model":"m","prompt":""}"#, missing("prompt")),
            (Images, r#"{"model":"m","prompt":["x"]}"#, bad("prompt")),
            (Images, r#"{"model":"m","prompt":7}"#, bad("prompt")),
            (Generate, r#"{"model":"m"}"#, missing("token_ids")),
            (Generate, r#"{"model":"m","token_ids":[]}"#, missing("token_ids")),
            (Generate, r#"{"model":"m","token_ids":[[1]]}"#, bad("token_ids")),
            (Generate, r#"{"model":"m","token_ids":[1,-1]}"#, bad("token_ids")),
            (Generate, r#"{"model":"m","token_ids":[4294967296]}"#, bad("token_ids")),
            (Generate, r#"{"model":"m","token_ids":"x"}"#, bad("token_ids")),
            (Generate, r#"{"token_ids":[1]}"#, RequestError::MissingModel),
            (SglangGenerate, r#"{"text":"x"}"#, missing("input_ids")),
            (SglangGenerate, r#"{"input_ids":[1,"2"]}"#, bad("input_ids")),
        ] {
            let got = scan(path, body).unwrap_err();
            assert_eq!(got, error, "{body}");
            let reply = crate::request::LocalReply::from(&got);
            assert_eq!(reply.status, 400);
            if let Some(field) = got.param() {
                assert!(String::from_utf8(reply.body).unwrap().contains(&format!("'{field}'")));
            }
        }
    }

    fn what_counts_as_output_limit() {
        for (path, body, limit) in [
            (Responses, r#"{"model":"m","input":"x","max_output_tokens":7,"max_tokens":8}"#, Some(7)),
            (Responses, r#"{"model":"m","input":"x","max_tokens":8}"#, None),
            (Embeddings, r#"{"model":"m","input":"x","max_tokens":8}"#, None),
            (Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"max_tokens":9},"max_tokens":8}"#, Some(9)),
            (Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"max_tokens":9},"sampling_params":{}}"#, None),
            (Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"max_tokens":9},"sampling_params":null}"#, None),
            (Generate, r#"{"model":"m","token_ids":[1],"sampling_params":{"max_new_tokens":9}}"#, None),
            (SglangGenerate, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":6}}"#, Some(6)),
            (SglangGenerate, r#"{"input_ids":[1],"sampling_params":[{"max_new_tokens":6}]}"#, None),
        ] {
            assert_eq!(scan(path, body).unwrap().max_output_tokens, limit, "{body}");
        }
    }

    fn what_stands_for_the_prompt() {
        let responses = r#"{"model":"m","tools":[{"b":1,"a":2}],"input":[{"role":"user","content":"<x>"}, {"type":"reasoning","tool_calls":[1]}],"instructions":"Be brief."}"#;
        for (path, body, expected) in [
            (Responses, r#"{"model":"m","input":"H\u0069","instructions":"Be brief."}"#, "Be brief.Hi"),
            (Responses, responses, concat!(r#"Be brief.[{"a":2,"b":1}]"#, r#"[{"role":"user","content":"<x>"}, {"type":"reasoning","tool_calls":[1]}]"#)),
            (Responses, r#"{"model":"m","input":["x"],"input":"y"}"#, "y"),
            (Responses, r#"{"model":"m","input":"y","input":[1]}"#, "[1]"),
            (Responses, r#"{"model":"m","input":7}"#, ""),
            (Conversations, r#"{"model":"m","items":[{"role":"user"}]}"#, r#"[{"role":"user"}]"#),
            (Embeddings, r#"{"model":"m","input":["x","y"]}"#, "x"),
            (Embeddings, r#"{"model":"m","input":[97]}"#, "a\0\0\0"),
            (Images, r#"{"model":"m","prompt":"a cat"}"#, ""),
            (Generate, r#"{"model":"m","token_ids":[97,256]}"#, "a\0\0\0\0\u{1}\0\0"),
            (SglangGenerate, r#"{"input_ids":[97]}"#, "a\0\0\0"),
        ] {
            let facts = scan(path, body).unwrap();
            assert_eq!(String::from_utf8_lossy(&stream(&facts, 0)), expected, "{body}");
        }
        assert_eq!(scan(Embeddings, r#"{"model":"m","input":["x","y"]}"#).unwrap().prompt_count(), 2);
    }

    fn salts_and_flags() {
        let facts = scan(SglangGenerate, r#"{"input_ids":[1],"extra_key":"k","cache_salt":"s","stream":true,"model":"m"}"#).unwrap();
        assert_eq!(facts.cache_salt.map(|salt| facts.str(salt)), Some("k"));
        assert!(facts.stream && facts.model.is_none() && facts.usage_splices(true).is_empty());
        let facts = scan(Generate, r#"{"model":"m","token_ids":[1],"cache_salt":"s","features":null}"#).unwrap();
        assert_eq!(facts.cache_salt.map(|salt| facts.str(salt)), Some("s"));
        assert!(!facts.is_multimodal());
    }

    fn media_are_seen_wherever_they_stand() {
        let image = r#"{"type":"image_url","image_url":{"url":"u"}}"#;
        let input_image = r#"{"type":"input_image","image_url":"u"}"#;
        let block = r#"{"type":"image","source":{"data":"d"}}"#;
        let chat = |part: &str| format!(r#"{{"model":"m","messages":[{{"content":["x"]}},{{"content":["a",{part}]}}]}}"#);
        for (path, body, expected) in [
            (PathClass::Chat, chat(image), true),
            (PathClass::Chat, chat(r#"{"type":"input_audio","input_audio":{"data":"d","format":"wav"}}"#), true),
            (PathClass::Chat, chat(r#"{"type":"text","text":"image_url"}"#), false),
            (PathClass::Messages, chat(block), true),
            (PathClass::Messages, chat(&format!(r#"{{"type":"tool_result","content":[{block}]}}"#)), true),
            (Responses, format!(r#"{{"model":"m","input":[{{"content":[{input_image}]}}]}}"#), true),
            (Responses, format!(r#"{{"model":"m","input":[{{"content":[{input_image}]}}],"input":"x"}}"#), false),
            (Generate, r#"{"model":"m","token_ids":[1],"features":{"mm_hashes":{}}}"#.into(), true),
        ] {
            assert_eq!(scan(path, &body).unwrap().is_multimodal(), expected, "{body}");
        }
    }
}
