//! Fields beside the input: limits, stream options, what alters tokens; and keys that come twice.

use super::*;
use crate::request::Field;

crate::tests! {
    fn of_duplicate_keys_the_last_wins() {
        let body = r#"{"model":"cheap","stream":true,"max_tokens":1,"messages":7,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":[{"text":"old"}],"content":"new","role":"system"}],
            "max_tokens":900,"stream":false,"stream_options":{},"\u006dodel":"big"}"#;
        let facts = chat(body).unwrap();
        assert_eq!(facts.model_name(), "big");
        assert_eq!(&body[facts.model.unwrap().span.range()], r#""big""#);
        assert!(!facts.stream);
        assert_eq!(facts.max_output_tokens, Some(900));
        assert_eq!(facts.stream_options.unwrap().include_usage, None);
        assert_eq!(stream(&facts, 0), b"systemnew");

        let twice = r#"{"model":"m","messages":[{"content":"a"}],"messages":[{"content":"b"},{"content":"c"}]}"#;
        assert_eq!(stream(&chat(twice).unwrap(), 0), b"bc");
        let undone = r#"{"model":"m","messages":[{"content":"a"}],"messages":null}"#;
        assert_eq!(chat(undone).unwrap_err(), RequestError::MissingMessages);
        let mended = r#"{"model":"m","messages":[1],"messages":[{"content":"a"}]}"#;
        assert_eq!(stream(&chat(mended).unwrap(), 0), b"a");
        let mended = r#"{"model":"m","messages":[{"role":1}],"messages":[{"content":"a"}]}"#;
        assert_eq!(stream(&chat(mended).unwrap(), 0), b"a");
        let no_model = r#"{"model":"m","model":5,"messages":[{}]}"#;
        assert_eq!(chat(no_model).unwrap_err(), RequestError::MissingModel);
        let prompts = r#"{"model":"m","prompt":["a","b"],"prompt":"c"}"#;
        assert_eq!(completion(prompts).unwrap().prompt_count(), 1);
    }

    fn the_output_limit_is_the_first_valid_one() {
        for (fields, expected) in [
            (r#""max_tokens":5"#, Some(5)),
            (r#""max_tokens":0"#, Some(0)),
            (r#""max_tokens":5.0"#, Some(5)),
            (r#""max_tokens":-1"#, None),
            (r#""max_tokens":1.5"#, Some(2)),
            (r#""max_tokens":"5""#, Some(5)),
            (r#""max_tokens":null"#, None),
            (r#""max_tokens":5,"max_completion_tokens":6"#, Some(6)),
            (r#""max_completion_tokens":"x","max_tokens":5"#, Some(5)),
            (r#""max_completion_tokens":-6,"max_tokens":5"#, Some(5)),
            (r#""x":1"#, None),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{{}}],{fields}}}"#);
            assert_eq!(chat(&body).unwrap().max_output_tokens, expected, "{fields}");
        }
    }

    fn stream_options_say_what_to_splice() {
        let read = |value: &str| {
            let body = format!(r#"{{"model":"m","prompt":"p","stream_options":{value}}}"#);
            let options = completion(&body).unwrap().stream_options.unwrap();
            assert_eq!(&body[options.span.start as usize..][..1], &value[..1]);
            if options.is_object {
                assert_eq!(&body[options.span.range()], value);
            }
            let field = |f: Option<Field<Option<bool>>>| {
                f.map(|f| (f.value, body[f.span.range()].to_owned()))
            };
            let (a, b) = (field(options.include_usage), field(options.continuous_usage_stats));
            (options.is_object, options.is_empty, a, b)
        };
        let said = |value: Option<bool>, text: &str| Some((value, text.to_owned()));
        assert_eq!(read("null"), (false, false, None, None));
        assert_eq!(read("true"), (false, false, None, None));
        assert_eq!(read("{ }"), (true, true, None, None));
        assert_eq!(read(r#"{"x":1}"#), (true, false, None, None));
        assert_eq!(
            read(r#"{"include_usage":true}"#),
            (true, false, said(Some(true), "true"), None)
        );
        assert_eq!(
            read(r#"{"continuous_usage_stats": false ,"include_usage":null}"#),
            (true, false, said(None, "null"), said(Some(false), "false"))
        );
        assert_eq!(completion(r#"{"model":"m","prompt":"p"}"#).unwrap().stream_options, None);
    }

    fn fields_that_alter_tokens_are_noticed() {
        for (path, field, expected) in [
            (PathClass::Chat, r#""add_special_tokens":true"#, true),
            (PathClass::Chat, r#""add_special_tokens":false"#, false),
            (PathClass::Chat, r#""truncate_prompt_tokens":7"#, true),
            (PathClass::Chat, r#""truncate_prompt_tokens":null,"suffix":"x""#, false),
            (PathClass::Completions, r#""add_special_tokens":true"#, false),
            (PathClass::Completions, r#""add_special_tokens":false"#, true),
            (PathClass::Completions, r#""suffix":"x""#, true),
            (PathClass::Completions, r#""suffix":null"#, false),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{{}}],"prompt":"p",{field}}}"#);
            let facts = scan_slices(path, [body.as_bytes()]).unwrap();
            assert_eq!(facts.alters_tokens, expected, "{path:?} {field}");
        }
    }
}
