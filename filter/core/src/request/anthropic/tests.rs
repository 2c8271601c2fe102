use crate::request::tests::{content, describe, scan_slices, stream};
use crate::request::{PathClass, RequestError, RequestFacts, Scratch, TextSpan, render_prompt};
use warmroute_chat_template::{Template, TemplateSource};

fn messages(body: &str) -> Result<RequestFacts, RequestError> {
    scan_slices(PathClass::Messages, [body.as_bytes()])
}

/// A request with these fields besides the model.
fn with(fields: &str) -> RequestFacts {
    messages(&format!(r#"{{"model":"m",{fields}}}"#)).unwrap()
}

fn approximate(fields: &str) -> String {
    String::from_utf8(stream(&with(fields), 0)).unwrap()
}

/// Shows all of a conversation that a template can see.
const SHOW: &str = "{% for m in messages %}[{{ m.role }}{% if m.tool_call_id is defined %}({{ m.tool_call_id }})\
{% endif %}{% if m.reasoning is defined %} <{{ m.reasoning }}>{% endif %}: {{ m.content }}{% for c in m.tool_calls \
%} {{ c.id }}={{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}{% if tools %}\
{{ tools | tojson }}{% endif %}{% if reasoning_effort %} effort {{ reasoning_effort }}{% endif %}";

fn render_with(template: &str, fields: &str) -> Result<String, String> {
    let source = TemplateSource { text: template.into(), special_tokens: vec![] };
    let template = Template::compile(&source).unwrap();
    let mut out = Vec::new();
    render_prompt(&with(fields), &template, 0, 10_000, &mut |piece| out.extend_from_slice(piece))
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

const FULL: &str = r#"{"model":"claude","max_tokens":64,"stream":true,"cache_salt":"s","n":3,"prompt":"no",
    "system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"text":"Be ","type":"text"},
        {"type":"text","text":"brief.","cache_control":{"type":"ephemeral"}}],
    "thinking":{"budget_tokens":1,"type":"disabled"},"output_config":{"effort":"low"},
    "tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"},
    "messages":[{"role":"user","content":"hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},
        {"input":{"b":1.0,"a":{"id":"no"}},"id":"t1","type":"tool_use","name":"f"}]},
      {"content":[{"content":[{"type":"text","text":"one"},{"text":"two","type":"text"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}},{"type":"tool_reference"},7],
          "tool_use_id":"t1","type":"tool_result"},
        {"type":"tool_result","tool_use_id":"t2","content":"three"},
        {"type":"image","source":{"type":"url","url":"http://h/i.png"}},{"type":"tool_result"},
        {"type":"text","text":"so?"}],"role":"user"}]}"#;

crate::tests! {
    fn a_full_request_is_read() {
        let facts = messages(FULL).unwrap();
        assert_eq!(facts.model_name(), "claude");
        assert!(facts.stream);
        assert_eq!((facts.max_output_tokens, facts.choices, facts.prompt_count()), (Some(64), None, 1));
        let text = |span: Option<TextSpan>| span.map(|span| facts.str(span));
        assert_eq!(text(facts.cache_salt), Some("s"));
        assert_eq!(text(facts.reasoning_effort), Some("low"));
        assert!(facts.disables_thinking);
        assert!(facts.tools.is_some() && facts.tool_choice.is_some());
        let contents: Vec<_> = facts.messages().iter().map(|m| content(&facts, m)).collect();
        assert_eq!(contents, [
            vec!["hi"],
            vec!["thinking:hm", "skipped", "text:I look.", r#"use:t1:f:{"b":1.0,"a":{"id":"no"}}"#],
            vec![
                r#"result:t1:["text:one", "text:two", "Image:iVBO:", "other", "other"]"#,
                "result:t2:three", "Image:http://h/i.png:", "result:-:[]", "text:so?",
            ],
        ]);
    }

    fn a_cut_anywhere_changes_nothing() {
        let whole = describe(&messages(FULL).unwrap());
        for cut in 1..FULL.len() {
            let (a, b) = FULL.as_bytes().split_at(cut);
            let facts = scan_slices(PathClass::Messages, [a, b]).unwrap();
            assert_eq!(describe(&facts), whole, "cut at {cut}");
        }
    }

    fn wrong_requests_are_refused() {
        for (body, status) in [
            (r#"{"messages":[{"role":"user","content":"x"}]}"#, RequestError::MissingModel),
            (r#"{"model":"m"}"#, RequestError::MissingMessages),
            (r#"{"model":"m","messages":[]}"#, RequestError::MissingMessages),
            (r#"{"model":"m","prompt":"x"}"#, RequestError::MissingMessages),
        ] {
            assert_eq!(messages(body).err(), Some(status), "{body}");
        }
    }

    fn odd_shapes_are_read_as_nothing() {
        for fields in [
            r#""system":7"#, r#""system":null"#, r#""system":{"a":[]}"#, r#""system":[7,null,[]]"#,
            r#""thinking":{"type":7}"#, r#""thinking":[]"#, r#""output_config":{"effort":null}"#,
        ] {
            let facts = with(&format!(r#"{fields},"messages":[{{"content":"x"}}]"#));
            assert!(!facts.disables_thinking && facts.reasoning_effort.is_none(), "{fields}");
        }
    }

    fn of_duplicate_keys_the_last_wins() {
        let fields = r#""system":"a","system":[{"type":"text","text":"old","text":"b"}],
            "thinking":{"type":"disabled"},"thinking":{"type":"adaptive"},
            "output_config":{"effort":"low"},"output_config":{},
            "messages":[{"role":"user","content":[{"type":"tool_result","content":"old","content":[
                {"type":"text","text":"new"}],"tool_use_id":"t"}]}]"#;
        let facts = with(fields);
        assert!(!facts.disables_thinking && facts.reasoning_effort.is_none());
        assert_eq!(stream(&facts, 0), b"busernew");
    }

    fn approximate_stream() {
        for (fields, expected) in [
            (r#""system":"S","messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]"#, "SuseruassistantA"),
            (r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"T"},{"type":"tool_use","id":"i","name":"n","input":{ "a":1}}]}]"#,
             r#"assistantTin{ "a":1}"#),
            (r#""messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"type":"text","text":"z"}]}]"#,
             "userx\nyz"),
            (r#""tools":[{"name":"f"}],"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"u"}]"#,
             r#"[{"name":"f"}]Suseru"#),
        ] {
            assert_eq!(approximate(fields).to_lowercase(), expected.to_lowercase(), "{fields}");
        }
    }

    fn an_image_stands_for_its_tokens() {
        let base64 = r#""messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"iVBO"}}]}]"#;
        assert_eq!(stream(&with(base64), 0).len(), 4 + 225 * 4);
        let nested = r#""messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"url":"u"}}]}]}]"#;
        assert_eq!(stream(&with(nested), 0).len(), 4 + 225 * 4);
    }

    fn rendered_as_the_chat_that_vllm_makes() {
        for (fields, expected) in [
            (r#""system":"S","messages":[{"role":"user","content":"u"}]"#, "[system: S][user: u]"),
            (r#""system":[{"type":"text","text":"x-anthropic-billing-header"},{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":"u"}]"#,
             "[system: AB][user: u]"),
            // A system message within the conversation stays where it is, if it says anything.
            (r#""messages":[{"role":"user","content":"u"},{"role":"system","content":"S"},{"role":"system","content":""}]"#,
             "[user: u][system: S]"),
            (r#""messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}]"#,
             "[user: a\nb]"),
            (r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"T"},{"type":"text","text":"t"},{"type":"tool_use","id":"i","name":"f","input":{"b":1.0,"a":null}},{"type":"tool_use","id":"j","name":"g"}]}]"#,
             r#"[assistant <T>: t i=f{"b": 1.0, "a": null} j=g{}]"#),
            // Results come before what the user says.
            (r#""messages":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"tool_result","tool_use_id":"i","content":"r"},{"type":"tool_result","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]}]"#,
             "[tool(i): r][tool(): x\ny][user: q]"),
            // A user who only gives results says nothing else; an assistant who says nothing still speaks.
            (r#""messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i"}]},{"role":"assistant","content":[]},{"role":"user","content":[]}]"#,
             "[tool(i): ][assistant: ]"),
            (r#""tools":[{"input_schema":{"a":1},"name":"f","x":1}],"messages":[{"role":"user","content":"u"}]"#,
             r#"[user: u][{"type": "function", "function": {"name": "f", "description": null, "parameters": {"a": 1, "type": "object"}}}]"#),
            (r#""output_config":{"effort":"high"},"messages":[{"role":"user","content":"u"}]"#, "[user: u] effort high"),
            (r#""output_config":{"effort":"high"},"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"u"}]"#,
             "[user: u] effort none"),
        ] {
            assert_eq!(render_with(SHOW, fields).as_deref(), Ok(expected), "{fields}");
        }
    }

    fn a_template_that_wants_the_system_first_gets_all_of_it_there() {
        let picky = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}\
            {% endif %}[{{ m.role }}: {{ m.content }}]{% endfor %}";
        let fields = r#""system":"S","messages":[{"role":"user","content":"u"},{"role":"system","content":"T"},{"role":"user","content":"v"}]"#;
        assert_eq!(render_with(picky, fields).as_deref(), Ok("[system: ST][user: u][user: v]"));
    }

    fn what_the_bytes_of_are_unknown_is_not_rendered() {
        for content in [
            r#"{"type":"image","source":{"data":"x"}}"#,
            r#"{"type":"tool_reference","tool_name":"f"}"#,
            r#"{"type":"tool_result","content":[{"type":"image","source":{"data":"x"}}]}"#,
            r#"{"type":"tool_use","name":"f","input":{}}"#,
        ] {
            let role = if content.contains("tool_use") { "assistant" } else { "user" };
            let fields = format!(r#""messages":[{{"role":"{role}","content":[{content}]}}]"#);
            assert!(render_with(SHOW, &fields).is_err(), "{content}");
        }
        assert!(render_with(SHOW, r#""messages":[{"role":"critic","content":"x"}]"#).is_err());
    }

    fn buffers_come_back() {
        let scratch: Scratch = messages(FULL).unwrap().into_scratch();
        assert!(scratch.held_bytes() > 0);
    }
}
