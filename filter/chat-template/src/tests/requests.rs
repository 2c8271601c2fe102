//! What a request's fields become, on templates that show them. Where a case was found by running vLLM 0.32, the
//! goldens hold more of its kind.

use super::{one, render, says};
use crate::RenderError;
use crate::request::{ChatRequest, Content, Message, Part, ToolCall, ToolCalls, Tools};

fn refused<T>(outcome: &Result<T, RenderError>) -> bool {
    matches!(outcome, Err(RenderError::Refused(_)))
}

fn with<'a>(change: impl FnOnce(&mut ChatRequest<'a>)) -> ChatRequest<'a> {
    let mut request = one();
    change(&mut request);
    request
}

/// Renders a request of this message.
fn message(template: &str, message: Message<'_>) -> Result<String, RenderError> {
    render(template, &ChatRequest { messages: vec![message], ..ChatRequest::default() })
}

#[test]
fn only_an_assistants_and_a_tools_extra_fields_come_through() {
    let all = |role| Message {
        role: Some(role),
        content: Content::Text(b"c"),
        name: Some("n"),
        tool_call_id: Some("t"),
        reasoning: Some("r"),
        tool_calls: Some(ToolCalls::Json(
            br#"[{"id":"i","type":"function","function":{"name":"f","arguments":"{}"}}]"#,
        )),
    };
    for (role, expected) in [
        ("user", r#"{"role": "user", "content": "c", "name": "n"}"#),
        ("tool", r#"{"role": "tool", "content": "c", "tool_call_id": "t", "name": "n"}"#),
        (
            "assistant",
            r#"{"role": "assistant", "content": "c", "tool_calls": [{"id": "i", "function": {"arguments": {}, "name": "f"}, "type": "function"}], "reasoning": "r", "reasoning_content": "r", "name": "n"}"#,
        ),
    ] {
        assert_eq!(message("{{ messages[0] | tojson }}", all(role)).as_deref(), Ok(expected));
    }
    assert!(refused(&message("x", Message { role: None, ..all("user") })));
}

#[test]
fn contents_take_the_shape_that_the_template_wants() {
    let strings = "{{ messages[0].content | tojson }}";
    let parts = "{% for p in messages[0].content %}{% endfor %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}{{ messages[0].content | tojson }}";
    let two = || Content::Parts(vec![Part::Text(b"a"), Part::Text(b"b")]);
    for (content, as_string, as_parts) in [
        (Content::Text(b"a"), r#""a""#, r#"[{"type": "text", "text": "a"}]"#),
        (two(), r#""a\nb""#, r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]"#),
        (Content::None, r#""""#, "[]"),
        (Content::Parts(vec![]), r#""""#, "[]"),
    ] {
        let user =
            || Message { role: Some("user"), content: content.clone(), ..Message::default() };
        assert_eq!(message(strings, user()).as_deref(), Ok(as_string));
        assert_eq!(message(parts, user()).as_deref(), Ok(as_parts));
        // A tool's content is a string for any template (an empty one to loop over, here).
        let tool = Message { role: Some("tool"), ..user() };
        assert_eq!(message(parts, tool).as_deref(), Ok(as_string));
    }
    let image = Content::Parts(vec![Part::Text(b"a"), Part::Other]);
    let image = Message { role: Some("user"), content: image, ..Message::default() };
    assert!(matches!(message(strings, image), Err(RenderError::Unsupported(_))));
}

#[test]
fn the_billing_header_goes() {
    let show = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    for (role, text, expected) in [
        ("system", "x-anthropic-billing-header: 1\nrest", "[rest]"),
        ("system", "x-anthropic-billing-header: 1", "[]"),
        ("system", "rest\nx-anthropic-billing-header: 1", "[rest\nx-anthropic-billing-header: 1]"),
        ("user", "x-anthropic-billing-header: 1\nrest", "[x-anthropic-billing-header: 1\nrest]"),
    ] {
        assert_eq!(message(show, says(role, text)).as_deref(), Ok(expected), "{role} {text}");
    }
}

#[test]
fn developers_become_system_where_the_template_knows_none() {
    let show = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}";
    let knowing = format!("{show}{{% if false %}}{{{{ 'developer' }}}}{{% endif %}}");
    let request = |messages| ChatRequest { messages, ..ChatRequest::default() };
    let scattered = || {
        request(vec![
            says("system", "A"),
            says("user", "u"),
            says("developer", "B"),
            says("system", ""),
        ])
    };
    assert_eq!(render(show, &scattered()).as_deref(), Ok("[system: A\n\nB][user: u]"));
    assert_eq!(
        render(&knowing, &scattered()).as_deref(),
        Ok("[system: A][user: u][developer: B][system: ]")
    );
    let first = request(vec![says("developer", "A"), says("user", "u")]);
    assert_eq!(render(show, &first).as_deref(), Ok("[system: A][user: u]"));
    // Without a developer nothing is moved.
    let plain = request(vec![says("user", "u"), says("system", "A")]);
    assert_eq!(render(show, &plain).as_deref(), Ok("[user: u][system: A]"));
}

#[test]
fn tool_calls() {
    let show = "{{ messages[0].tool_calls | default('none') | tojson }}";
    let call = |raw: &str| {
        let calls = ToolCalls::Json(raw.as_bytes());
        message(show, Message { tool_calls: Some(calls), ..says("assistant", "") })
    };
    let with_arguments = |arguments: &str| {
        let raw = serde_json::json!([{"id": "i", "type": "function", "function": {"name": "f", "arguments": arguments}}]);
        call(&raw.to_string())
    };
    for (arguments, expected) in [
        (r#"{"b": 1.50, "a": "é"}"#, r#"{"b": 1.5, "a": "é"}"#),
        ("{", "{}"),
        ("", "{}"),
        ("[1]", "{}"),
        ("null", "{}"),
        ("7", "{}"),
    ] {
        let expected = format!(
            r#"[{{"id": "i", "function": {{"arguments": {expected}, "name": "f"}}, "type": "function"}}]"#
        );
        assert_eq!(with_arguments(arguments), Ok(expected), "{arguments}");
    }
    assert!(matches!(with_arguments(r#"{"a": "\ud800"}"#), Err(RenderError::Unsupported(_))));
    assert_eq!(call("[]").as_deref(), Ok(r#""none""#));
    for raw in [
        "{}",
        "7",
        "[7]",
        "[{}]",
        r#"[{"type":"function","function":{"name":"f","arguments":"{}"}}]"#,
        r#"[{"id":"i","function":{"name":"f","arguments":"{}"}}]"#,
        r#"[{"id":"i","type":"custom","custom":{}}]"#,
        r#"[{"id":"i","type":"function","function":{"name":"f"}}]"#,
        r#"[{"id":"i","type":"function","function":{"name":"f","arguments":{}}}]"#,
        r#"[{"id":"i","type":"function","function":{"name":7,"arguments":"{}"}}]"#,
        r#"[{"id":"i","type":"function","function":"f"}]"#,
    ] {
        assert!(refused(&call(raw)), "{raw}");
    }
}

#[test]
fn anthropic_tool_calls() {
    let show = "{{ messages[0].tool_calls | tojson }}";
    let call = |id, input| {
        let calls = ToolCalls::List(vec![ToolCall { id, name: "f", input }]);
        message(show, Message { tool_calls: Some(calls), ..says("assistant", "") })
    };
    let expected =
        r#"[{"id": "i", "type": "function", "function": {"name": "f", "arguments": {"b": 1.0}}}]"#;
    assert_eq!(call(Some("i"), Some(br#"{"b":1.0}"#)).as_deref(), Ok(expected));
    let empty = expected.replace(r#""b": 1.0"#, "");
    assert_eq!(call(Some("i"), None), Ok(empty.clone()));
    assert_eq!(call(Some("i"), Some(b"null")), Ok(empty));
    assert!(refused(&call(Some("i"), Some(b"[1]"))));
    assert!(matches!(call(None, None), Err(RenderError::Unsupported(_))));
}

#[test]
fn tools_pass_through_the_schema() {
    let tools =
        |tools| render("{{ tools | tojson }}", &with(|request| request.tools = Some(tools)));
    let openai = |raw: &'static str| tools(Tools::OpenAi(raw.as_bytes()));
    for (raw, expected) in [
        (
            r#"[{"function":{"x":1,"parameters":{"z":1.0,"a":{}},"name":"f"},"y":1}]"#,
            r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": 1.0, "a": {}}}}]"#,
        ),
        (
            r#"[{"type":"function","function":{"name":"f","strict":true,"description":"é","defer_loading":null}}]"#,
            r#"[{"type": "function", "function": {"name": "f", "description": "é", "parameters": null, "strict": true}}]"#,
        ),
        (
            r#"[{"function":{"name":"f"},"defer_loading":true}]"#,
            r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "defer_loading": true}, "defer_loading": true}]"#,
        ),
    ] {
        assert_eq!(openai(raw).as_deref(), Ok(expected), "{raw}");
    }
    for raw in [
        "[]",
        "{}",
        "7",
        r#""x""#,
        "[7]",
        "[{}]",
        r#"[{"function":7}]"#,
        r#"[{"function":{}}]"#,
        r#"[{"type":"x","function":{"name":"f"}}]"#,
        r#"[{"function":{"name":7}}]"#,
        r#"[{"function":{"name":"f","description":7}}]"#,
        r#"[{"function":{"name":"f","parameters":[]}}]"#,
    ] {
        assert!(refused(&openai(raw)), "{raw}");
    }
    let lax = openai(r#"[{"function":{"name":"f","strict":"yes"}}]"#);
    assert!(matches!(lax, Err(RenderError::Unsupported(_))));
    let anthropic = |raw: &'static str| tools(Tools::Anthropic(raw.as_bytes()));
    assert_eq!(
        anthropic(r#"[{"input_schema":{"a":1},"name":"f","strict":false,"x":1}]"#).as_deref(),
        Ok(
            r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"a": 1, "type": "object"}, "strict": false}}]"#
        )
    );
    assert_eq!(anthropic("[]").as_deref(), Ok("[]"));
    assert!(refused(&anthropic(r#"[{"name":"f"}]"#)));
    assert_eq!(render("{{ tools is none }}", &one()).as_deref(), Ok("True"));
}

#[test]
fn arguments_and_efforts() {
    let show = "{{ bos_token }} {{ x | default('-') }} {{ enable_thinking | default('-') }} {{ reasoning_effort | default('-') }} {{ add_generation_prompt }}";
    type Case<'a> = (Option<&'a [u8]>, Option<&'a str>, &'a str);
    let cases: [Case<'_>; 8] = [
        (None, None, "<s> - - - True"),
        (Some(br#"{"x":[1],"bos_token":"B"}"#), None, "B [1] - - True"),
        (Some(br#"{"x":null,"enable_thinking":false}"#), None, "<s> - False - True"),
        (Some(br#"{"x":"auto","add_generation_prompt":false}"#), None, "<s> - - - True"),
        (None, Some("none"), "<s> - False none True"),
        (None, Some("high"), "<s> - True high True"),
        (Some(br#"{"enable_thinking":false}"#), Some("high"), "<s> - False high True"),
        (Some(br#"{"enable_thinking":null}"#), Some("high"), "<s> - - high True"),
    ];
    for (arguments, effort, expected) in cases {
        let request = with(|request| {
            request.template_arguments = arguments;
            request.reasoning_effort = effort;
        });
        assert_eq!(render(show, &request).as_deref(), Ok(expected), "{arguments:?} {effort:?}");
    }
    let effort = with(|request| request.reasoning_effort = Some("extreme"));
    assert!(refused(&render(show, &effort)));
    let list = with(|request| request.template_arguments = Some(b"[]"));
    assert!(refused(&render(show, &list)));
    for raw in [
        r#"{"tokenize":true}"#,
        r#"{"messages":[]}"#,
        r#"{"chat_template":"x"}"#,
        r#"{"x":"\ud800"}"#,
    ] {
        let request = with(|request| request.template_arguments = Some(raw.as_bytes()));
        assert!(matches!(render(show, &request), Err(RenderError::Unsupported(_))), "{raw}");
    }
    // The name under which the clock travels is not the client's to set.
    let clock = with(|request| request.template_arguments = Some(br#"{"warmroute_clock":0}"#));
    assert_eq!(render("{{ strftime_now('%Y') }}", &clock).as_deref(), Ok("2026"));
}

#[test]
fn documents() {
    let show = "{% for d in documents or [] %}{{ d.title }}={{ d.text }};{% endfor %}";
    let render = |raw: &'static [u8]| render(show, &with(|request| request.documents = Some(raw)));
    assert_eq!(render(br#"[{"title":"t","text":"x"}]"#).as_deref(), Ok("t=x;"));
    assert_eq!(render(b"[]").as_deref(), Ok(""));
    for raw in [&b"{}"[..], b"[7]", br#"[{"title":7}]"#, br#""x""#] {
        assert!(refused(&render(raw)));
    }
}

#[test]
fn the_final_message_goes_on() {
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let trimming = plain.replace("m.content", "m.content | trim");
    let dropping = "{% for m in messages[:-1] %}{{ m.content }}{% endfor %}";
    let request = |text| ChatRequest {
        messages: vec![says("user", "go"), says("assistant", text)],
        add_generation_prompt: Some(false),
        continue_final_message: Some(true),
        ..ChatRequest::default()
    };
    for (template, text, expected) in [
        (plain, "so", "<user>go</>\n<assistant>so"),
        (plain, "so \n", "<user>go</>\n<assistant>so \n"),
        (&trimming, "so \n", "<user>go</>\n<assistant>so"),
        (plain, "", "<user>go</>\n<assistant>"),
    ] {
        assert_eq!(
            render(template, &request(text)).as_deref(),
            Ok(expected),
            "{template} {text:?}"
        );
    }
    assert!(refused(&render(dropping, &request("so"))));
    let both = ChatRequest { add_generation_prompt: None, ..request("so") };
    assert!(refused(&render(plain, &both)));
    let nothing = ChatRequest { messages: vec![], ..request("so") };
    assert!(refused(&render(plain, &nothing)));
}
