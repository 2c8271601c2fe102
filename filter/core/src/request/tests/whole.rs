//! Bodies that have everything: each fact is read, however they are cut.

use super::*;
use crate::request::scratch::KEEP_BYTES;

crate::tests! {
    fn a_full_chat_is_read() {
        let facts = chat(FULL_CHAT).unwrap();
        assert_eq!(facts.model_name(), "llama");
        assert_eq!(&FULL_CHAT[facts.model.unwrap().span.range()], r#""ll\u0061ma""#);
        assert!(facts.stream);
        assert_eq!(facts.max_output_tokens, Some(9));
        assert_eq!(facts.choices, Some(2));
        assert_eq!(facts.cache_salt.map(|s| facts.str(s)), Some("s"));
        assert_eq!(facts.chat_template.map(|s| facts.str(s)), Some("{{t}}"));
        assert_eq!(facts.add_generation_prompt, Some(true));
        assert_eq!(facts.continue_final_message, Some(false));
        assert_eq!(facts.documents, None);
        assert_eq!(facts.body_bytes, FULL_CHAT.len());
        for (captured, raw) in [
            (facts.tools, r#"[ {"type":"function","function":{"name":"f","b":1,"a":"<"}} ]"#),
            (facts.tool_choice, r#""auto""#),
            (facts.chat_template_kwargs, r#"{"k":[1]}"#),
            (facts.tool_calls(&facts.messages()[2]), r#"[ {"id":"c1", "content":"[]{}"} ]"#),
        ] {
            let captured = captured.unwrap();
            assert_eq!(facts.raw(captured), raw.as_bytes());
            assert_eq!(&FULL_CHAT[captured.body.range()], raw);
        }
        let messages: Vec<_> = facts
            .messages()
            .iter()
            .map(|m| (facts.str(m.role.unwrap()), content(&facts, m)))
            .collect();
        assert_eq!(
            messages,
            [
                ("system", vec!["Be \"brief\".\n".to_owned()]),
                ("user", vec!["text:see é😀".to_owned(), "Image:http://h/i.png:".to_owned()]),
                ("assistant", vec![]),
                ("tool", vec!["42".to_owned()]),
            ]
        );
        let text = |span: Option<TextSpan>| facts.str(span.unwrap());
        assert_eq!(text(facts.messages()[1].name), "ann");
        assert_eq!(text(facts.messages()[2].reasoning), "hm");
        assert_eq!(text(facts.messages()[3].tool_call_id), "c1");
    }

    fn a_cut_anywhere_changes_nothing() {
        for (path, body) in [
            (PathClass::Chat, FULL_CHAT),
            (PathClass::Completions, FULL_COMPLETION),
        ] {
            let body = body.as_bytes();
            let whole = scan_slices(path, [body]).unwrap();
            let expected = (describe(&whole), stream(&whole, 0));
            let check = |got: Result<RequestFacts, RequestError>, cut: &str| {
                let got = got.unwrap();
                assert_eq!((describe(&got), stream(&got, 0)), expected, "{cut}");
            };
            check(scan_slices(path, body.chunks(1)), "byte by byte");
            check(scan_slices(path, body.chunks(7)), "seven by seven");
            for cut in 0..body.len() {
                let (a, b) = body.split_at(cut);
                check(scan_slices(path, [a, b]), &format!("cut at {cut}"));
            }
        }
    }

    fn a_completion_ignores_what_is_a_chats() {
        let facts = completion(FULL_COMPLETION).unwrap();
        assert_eq!(facts.max_output_tokens, Some(16));
        assert_eq!(facts.tools, None);
        assert!(facts.messages().is_empty());
        assert!(!facts.stream);
    }

    fn buffers_come_back_but_not_the_huge_ones() {
        let small = chat(FULL_CHAT).unwrap().into_scratch();
        let held = small.held_bytes();
        assert!(held > 0);
        let mut scan = BodyScan::new(PathClass::Chat, small);
        scan.feed(FULL_CHAT.as_bytes()).unwrap();
        let again = scan.finish().unwrap();
        assert_eq!(describe(&again), describe(&chat(FULL_CHAT).unwrap()));
        assert_eq!(again.into_scratch().held_bytes(), held, "reused, not grown");

        let huge = completion_of(&format!("\"{}\"", "x".repeat(10 * KEEP_BYTES))).unwrap();
        let mut scratch = huge.into_scratch();
        assert!(scratch.held_bytes() >= 10 * KEEP_BYTES);
        scratch.clear();
        scratch.drop_large();
        assert!(scratch.held_bytes() <= 2 * KEEP_BYTES);
    }

    fn a_body_of_known_length_gets_its_room_at_once_and_a_lie_little() {
        let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(3 << 20));
        let held = |length: usize, sent: usize| {
            let mut scan = BodyScan::new(PathClass::Completions, Scratch::default());
            scan.expect(length);
            for slice in body.as_bytes()[..sent].chunks(64 << 10) {
                scan.feed(slice).unwrap();
            }
            scan.held_bytes()
        };
        assert!(held(body.len(), body.len()) <= body.len() + 4096);
        for sent in [100 << 10, 1 << 20, 2 << 20] {
            assert!(held(16 << 20, sent) <= 4 * sent + (64 << 10), "{sent}");
        }
    }

    fn nothing_printed_holds_text() {
        let facts = chat(FULL_CHAT).unwrap();
        let printed = format!("{facts:?} {:?}", facts.scratch);
        assert!(!printed.contains("brief") && !printed.contains("llama"), "{printed}");
    }
}
