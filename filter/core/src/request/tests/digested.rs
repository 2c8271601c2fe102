//! Messages hashed as they come: the same blocks as from texts that were kept.

use super::*;
use crate::request::digest_prompt;
use warmroute_shared_state::prefix::BLOCK_BYTES;

const MOST: usize = 1 << 20;

/// Facts of a chat whose messages are hashed as they come, in slices of this size.
fn digested(body: &str, slice: usize) -> Result<RequestFacts, RequestError> {
    let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
    scan.expect(body.len());
    scan.digest_messages(MOST);
    for slice in body.as_bytes().chunks(slice) {
        scan.feed(slice)?;
    }
    scan.finish()
}

/// Block digests of its prompt, and its bytes.
fn blocks(facts: &RequestFacts, limit: usize) -> (Vec<u64>, u64) {
    let mut digests = Vec::new();
    let bytes = digest_prompt(facts, limit, &mut digests);
    (digests, bytes)
}

/// Hashed as they come, the body's messages give the blocks of texts that are kept.
fn same_as_kept(body: &str) {
    let kept = chat(body).unwrap();
    for slice in [1, 7, 100, body.len()] {
        let facts = digested(body, slice).unwrap();
        assert!(facts.is_digested() && !kept.is_digested());
        for limit in [0, 127, 128, 1000, 5000, MOST] {
            let facts = digested(body, slice).unwrap();
            let same = blocks(&facts, limit) == blocks(&kept, limit);
            assert!(same, "limit {limit}, slices of {slice}: {body:.300}");
        }
        assert_eq!(InputLength::of(&facts), InputLength::of(&kept), "{body:.300}");
        assert_eq!(facts.is_multimodal(), kept.is_multimodal(), "{body:.300}");
        assert_eq!(facts.model_name(), kept.model_name());
        assert_eq!(facts.messages().len(), kept.messages().len());
        for (ours, theirs) in facts.messages().iter().zip(kept.messages()) {
            assert_eq!(
                ours.role.map(|role| facts.str(role)),
                theirs.role.map(|role| kept.str(role))
            );
        }
    }
}

fn words(bytes: usize) -> String {
    "Wörter, \"quoted\"\\n and plain. ".repeat(bytes / 30).replace('"', "\\\"")
}

crate::tests! {
    fn a_chat_gives_the_same_blocks_as_one_that_is_kept() {
        let (a, b) = (words(3000), words(9000));
        let image = r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#;
        let audio = r#"{"input_audio":{"format":"wav","data":"AAAAAA"},"type":"input_audio"}"#;
        let tools = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}]"#;
        for messages in [
            format!(r#"{{"role":"system","content":"{a}"}},{{"role":"user","content":"{b}"}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{a}"}},{image},{{"text":"{b}","type":"text"}},{audio},"x"]}}"#),
            format!(r#"{{"role":"user","content":[{image},{{"type":"thinking","thinking":"{a}"}},{{"type":"odd","text":"{a}"}},{{"text":"{b}"}}]}}"#),
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"42"}"#.into(),
            r#"{"content":"no role"},{"role":"user"},{"role":"user","name":"ann","content":"","reasoning_content":"hm"}"#.into(),
        ] {
            same_as_kept(&format!(r#"{{"model":"m","messages":[{messages}]}}"#));
            same_as_kept(&format!(r#"{{"messages":[{messages}],{tools},"model":"m","stream":true}}"#));
            same_as_kept(&format!(r#"{{{tools},"messages":[{messages}],"model":"m"}}"#));
            // The last of duplicate keys counts.
            same_as_kept(&format!(r#"{{"messages":[{{"role":"user","content":"{b}"}}],"model":"m","messages":[{messages}]}}"#));
            same_as_kept(&format!(r#"{{"messages":"{a}","model":"m","messages":[{messages}]}}"#));
        }
    }

    fn of_duplicate_keys_within_a_message_all_count() {
        let (short, long) = ("a", words(3000));
        for message in [
            format!(r#"{{"role":"user","content":"{short}","content":"{long}"}}"#),
            format!(r#"{{"role":"user","content":"{long}","content":"{short}"}}"#),
            format!(r#"{{"role":"user","content":"{short}","role":"{long}"}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{short}","type":"x","text":"{long}","type":"text"}}]}}"#),
            format!(r#"{{"role":"user","content":[{{"text":"{long}","type":"text","text":"{short}"}}]}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{short}"}}],"content":[{{"type":"text","text":"{long}"}}]}}"#),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{message}]}}"#);
            let (ours, kept) = (digested(&body, 50).unwrap(), chat(&body).unwrap());
            let (ours, kept) = (InputLength::of(&ours).bytes, InputLength::of(&kept).bytes);
            assert!(ours >= kept, "{ours} of {kept}: {message:.300}");
            assert!(ours <= kept + 3010, "{ours} of {kept}: {message:.300}");
        }
    }

    fn nothing_is_made_room_for_before_it_comes() {
        let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
        scan.expect(1 << 24);
        scan.digest_messages(1 << 24);
        let before = scan.held_bytes();
        scan.feed(br#"{"model":"m","messages":[{"role":"user","content":""#).unwrap();
        assert!(before == 0 && scan.held_bytes() < 4096, "{before} {}", scan.held_bytes());
        // An image is kept until its part ends: that is made room for like any text.
        let image = "A".repeat(3 << 20);
        let body = format!(r#"{{"model":"m","messages":[{{"content":[{{"type":"image_url","image_url":{{"url":"{image}"}}}}]}}]}}"#);
        let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
        scan.expect(body.len());
        scan.digest_messages(1 << 24);
        body.as_bytes().chunks(64 << 10).for_each(|slice| scan.feed(slice).unwrap());
        assert!(scan.held_bytes() < body.len() + (512 << 10), "{} of {}", scan.held_bytes(), body.len());
    }

    fn a_role_that_comes_late_stands_late_and_the_next_turn_goes_on_from_there() {
        let (a, b) = (words(3000), words(3000));
        let first = format!(r#"{{"content":"{a}","role":"user"}}"#);
        let turn = |more: &str| digested(&format!(r#"{{"model":"m","messages":[{first}{more}]}}"#), 64).unwrap();
        let (short, bytes) = blocks(&turn(""), MOST);
        let (long, _) = blocks(&turn(&format!(r#",{{"content":"{b}","role":"assistant"}}"#)), MOST);
        assert_eq!(long[..short.len()], short);
        let (kept, kept_bytes) = blocks(&chat(&format!(r#"{{"model":"m","messages":[{first}]}}"#)).unwrap(), MOST);
        assert_eq!((kept.len(), kept_bytes), (short.len(), bytes));
    }

    fn what_is_wrong_is_wrong_here_too() {
        for messages in ["7", "[]", "[7]", r#"[{"role":7}]"#, r#"[{"content":{}}]"#, r#"[{"content":[7]}]"#, r#"[{"content":"x"#] {
            let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
            let (ours, theirs) = (digested(&body, 5).err(), chat(&body).err());
            assert!(ours.is_some());
            assert_eq!(ours, theirs, "{body}");
        }
    }

    fn a_few_bytes_that_stand_for_many_are_not_hashed_beyond_the_limit() {
        let video = r#"{"type":"video_url","video_url":{"url":"v"}}"#;
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{}]}}]}}"#, vec![video; 1000].join(","));
        let facts = digested(&body, body.len()).unwrap();
        assert_eq!(InputLength::of(&facts).bytes, 4 + 18_000 * 1000);
        let (digests, bytes) = blocks(&facts, usize::MAX);
        assert_eq!((digests.len(), bytes), (MOST / BLOCK_BYTES, 4 + 18_000 * 1000));
    }

    fn a_long_chat_takes_a_tenth_of_its_size_or_what_its_limit_needs() {
        let text = words(1 << 20);
        for messages in [
            format!(r#"{{"role":"user","content":"{text}"}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{messages}]}}"#);
            for (limit, most) in [(body.len(), body.len() / 10), (64 << 10, 16 << 10)] {
                let mut scan = BodyScan::new(PathClass::Chat, Scratch::default());
                scan.expect(body.len());
                scan.digest_messages(limit);
                for slice in body.as_bytes().chunks(1000) {
                    scan.feed(slice).unwrap();
                    assert!(scan.held_bytes() < most, "{} of {most}", scan.held_bytes());
                }
                assert!(scan.finish().unwrap().messages().len() == 1);
            }
        }
    }
}
