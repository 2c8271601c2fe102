use super::{JsonFault, Style, dumps, loads};
use minijinja::Value;
use proptest::prelude::*;

fn plain(value: &Value) -> String {
    dumps(value, &Style::new(None)).unwrap()
}

/// Python 3.11: `json.dumps(json.loads(text), ensure_ascii=False)`.
#[test]
fn written_as_python_would() {
    for (text, expected) in [
        ("{}", "{}"),
        (" [ ] ", "[]"),
        (
            r#"{"b":1,"a":[1e5,"é",null,true],"b":2}"#,
            r#"{"b": 2, "a": [100000.0, "é", null, true]}"#,
        ),
        ("[1, 1.0, -0, -0.0, 1E5, 0.1e-6]", "[1, 1.0, 0, -0.0, 100000.0, 1e-07]"),
        (
            "[1e16, 123456789012345680000, 1e22, 1.5e300, 0.0001, 0.00001]",
            "[1e+16, 123456789012345680000, 1e+22, 1.5e+300, 0.0001, 1e-05]",
        ),
        (
            "[9007199254740993, 18446744073709551616, -170141183460469231731687303715884105728]",
            "[9007199254740993, 18446744073709551616, -170141183460469231731687303715884105728]",
        ),
        ("[NaN, Infinity, -Infinity, 1e400]", "[NaN, Infinity, -Infinity, Infinity]"),
        (
            r#""\u00e9\ud83d\ude00\udbff\udfff\/\b\f\n\r\t\"\\\u0001""#,
            "\"é😀\u{10ffff}/\\b\\f\\n\\r\\t\\\"\\\\\\u0001\"",
        ),
        ("\"\u{7f}\u{2028}<&>'\"", "\"\u{7f}\u{2028}<&>'\""),
    ] {
        assert_eq!(plain(&loads(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn what_python_refuses_is_malformed() {
    for text in [
        "",
        "  ",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "nul",
        "1 2",
        "[1]x",
        "\"a",
        "\"\n\"",
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        "{\"a\" 1}",
        "{\"a\":}",
        "'a'",
        "\u{feff}1",
    ] {
        assert_eq!(loads(text), Err(JsonFault::Malformed), "{text}");
    }
}

#[test]
fn what_python_reads_and_we_cannot_hold() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for text in [
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00""#,
        r#"{"\uDBFF\udffe":1}"#,
        &"9".repeat(60),
        &deep,
    ] {
        assert_eq!(loads(text), Err(JsonFault::BeyondUs), "{text}");
    }
}

/// Python 3.11: `json.dumps(…, indent=, separators=, sort_keys=, ensure_ascii=)`.
#[test]
fn styles() {
    let value = loads(r#"{"b":[1,{"é":"😀"}],"a":{},"c":[]}"#).unwrap();
    let indented = Style::new(Some("  ".into()));
    assert_eq!(
        dumps(&value, &indented).unwrap(),
        "{\n  \"b\": [\n    1,\n    {\n      \"é\": \"😀\"\n    }\n  ],\n  \"a\": {},\n  \"c\": []\n}"
    );
    let tight = Style {
        item_separator: ",".into(),
        key_separator: ":".into(),
        sort_keys: true,
        ensure_ascii: true,
        ..Style::new(None)
    };
    assert_eq!(
        dumps(&value, &tight).unwrap(),
        r#"{"a":{},"b":[1,{"\u00e9":"\ud83d\ude00"}],"c":[]}"#
    );
}

#[test]
fn an_undefined_value_has_no_json() {
    assert!(dumps(&Value::UNDEFINED, &Style::new(None)).is_err());
}

proptest! {
    /// Any text is read or refused, and what serde_json reads is read alike.
    #[test]
    fn same_verdict_as_serde_json(text in r#"[\[\]{}:,"\\ eE0-9.\-+a-cé-]{0,24}|\PC{0,16}"#) {
        let ours = loads(&text);
        if let Ok(theirs) = serde_json::from_str::<serde_json::Value>(&text) {
            let again: serde_json::Value = serde_json::from_str(&plain(&ours.unwrap())).unwrap();
            // serde_json reads `-0` as a float.
            if !text.contains("-0") {
                prop_assert_eq!(again, theirs);
            }
        }
    }

    #[test]
    fn strings_come_back(text in any::<String>()) {
        prop_assume!(!text.contains('\u{10fffe}'));
        let written = plain(&Value::from(text.as_str()));
        let again = loads(&written).unwrap();
        prop_assert_eq!(again.as_str(), Some(text.as_str()));
    }
}
