use super::{Container, Handler, JsonError, JsonErrorKind as Kind, MAX_DEPTH, Scalar, Scanner};

/// One thing the scanner reported.
#[derive(Debug, PartialEq)]
enum Seen {
    Key(String),
    Text(usize, String, usize),
    Scalar(Scalar, usize, usize),
    Open(Container, usize),
    Close(Container, usize),
}

#[derive(Default)]
struct Record {
    seen: Vec<Seen>,
    text: Vec<u8>,
    text_at: usize,
}

impl Handler for Record {
    fn key(&mut self, name: &[u8]) {
        let name = String::from_utf8(name.to_vec()).unwrap();
        self.seen.push(Seen::Key(name));
    }
    fn string_start(&mut self, at: usize) {
        self.text.clear();
        self.text_at = at;
    }
    fn string_piece(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }
    fn string_end(&mut self, end: usize) {
        let text = String::from_utf8(self.text.clone()).expect("decoded strings are UTF-8");
        self.seen.push(Seen::Text(self.text_at, text, end));
    }
    fn scalar(&mut self, value: Scalar, at: usize, end: usize) {
        self.seen.push(Seen::Scalar(value, at, end));
    }
    fn open(&mut self, container: Container, at: usize) {
        self.seen.push(Seen::Open(container, at));
    }
    fn close(&mut self, container: Container, end: usize) {
        self.seen.push(Seen::Close(container, end));
    }
}

fn scan_slices<'a>(
    slices: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Seen>, Result<(), JsonError>) {
    let (mut scanner, mut record) = (Scanner::new(), Record::default());
    for slice in slices {
        if let Err(error) = scanner.feed(slice, &mut record) {
            assert_eq!(scanner.finish(&mut record), Err(error), "an error stays");
            return (record.seen, Err(error));
        }
    }
    let end = scanner.finish(&mut record);
    (record.seen, end)
}

fn scan(document: &[u8]) -> (Vec<Seen>, Result<(), JsonError>) {
    scan_slices([document])
}

/// The result in one slice, after checking that byte by byte and every cut in two give the same.
fn scan_every_cut(document: &[u8]) -> (Vec<Seen>, Result<(), JsonError>) {
    let whole = scan(document);
    assert_eq!(scan_slices(document.chunks(1)), whole, "byte by byte");
    for cut in 0..=document.len() {
        let (a, b) = document.split_at(cut);
        assert_eq!(scan_slices([a, b]), whole, "cut at {cut}");
    }
    whole
}

fn strings(document: &[u8]) -> Vec<String> {
    let (seen, end) = scan_every_cut(document);
    end.expect("well-formed");
    seen.into_iter()
        .filter_map(|s| match s {
            Seen::Text(_, text, _) => Some(text),
            _ => None,
        })
        .collect()
}

fn number(text: &str) -> Option<u64> {
    let (seen, end) = scan_every_cut(text.as_bytes());
    end.expect("well-formed");
    match seen.as_slice() {
        [Seen::Scalar(Scalar::Number(number), 0, end)] if *end == text.len() => number.as_u64(),
        other => panic!("{text}: {other:?}"),
    }
}

crate::tests! {
    fn events_come_in_order_with_offsets() {
        let (seen, end) = scan_every_cut(br#" {"a":[1,true],"b":"x\ny"} "#);
        assert_eq!(end, Ok(()));
        let Some(Seen::Scalar(one, 7, 8)) = seen.get(3) else {
            panic!("{seen:?}");
        };
        assert_eq!(
            seen,
            [
                Seen::Open(Container::Object, 1),
                Seen::Key("a".into()),
                Seen::Open(Container::Array, 6),
                Seen::Scalar(*one, 7, 8),
                Seen::Scalar(Scalar::Bool(true), 9, 13),
                Seen::Close(Container::Array, 14),
                Seen::Key("b".into()),
                Seen::Text(19, "x\ny".into(), 25),
                Seen::Close(Container::Object, 26),
            ]
        );
    }

    fn strings_are_unescaped() {
        for (document, expected) in [
            (r#""""#, ""),
            (r#""plain""#, "plain"),
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u0041\u00e9\u20AC\u0000""#, "Aé€\0"),
            (r#""\ud83d\ude00!""#, "😀!"),
            (r#""é€😀 mixed ünd plain""#, "é€😀 mixed ünd plain"),
            ("\"\u{7f}\u{80}\u{feff}\"", "\u{7f}\u{80}\u{feff}"),
        ] {
            assert_eq!(strings(document.as_bytes()), [expected], "{document}");
        }
    }

    fn nothing_hides_in_a_long_run() {
        // Short and long runs are searched in different ways: put each kind of byte everywhere.
        for before in 0..100 {
            let fill = "x".repeat(before);
            for (inside, decoded) in [("\\n", "\n"), ("é", "é"), ("\u{7f}", "\u{7f}"), ("!", "!")] {
                let document = format!("\"{fill}{inside}{fill}\"");
                let expected = format!("{fill}{decoded}{fill}");
                let (seen, end) = scan(document.as_bytes());
                assert_eq!(end, Ok(()));
                assert_eq!(seen, [Seen::Text(0, expected, document.len())]);
            }
            for (byte, kind) in [
                (0x00, Kind::ControlInString),
                (0x1f, Kind::ControlInString),
                (0x80, Kind::BadUtf8),
                (0xff, Kind::BadUtf8),
            ] {
                let document = [b"\"", fill.as_bytes(), &[byte], fill.as_bytes(), b"\""].concat();
                let error = JsonError { kind, offset: before + 1 };
                assert_eq!(scan(&document).1, Err(error), "{byte:#x} after {before}");
            }
        }
    }

    fn keys_are_unescaped_and_long_ones_empty() {
        let long = "k".repeat(33);
        let fits = "k".repeat(32);
        let document = format!(r#"{{"\u006dodel":1,"{long}":2,"{fits}":3,"":4}}"#);
        let (seen, end) = scan_every_cut(document.as_bytes());
        assert_eq!(end, Ok(()));
        let keys: Vec<_> = seen
            .iter()
            .filter_map(|s| match s {
                Seen::Key(key) => Some(key.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(keys, ["model", "", fits.as_str(), ""]);
    }

    fn whole_numbers_are_exact() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("7", Some(7)),
            ("-7", None),
            ("5.0", Some(5)),
            ("0.5e1", Some(5)),
            ("5000e-3", Some(5)),
            ("1e3", Some(1000)),
            ("1E+3", Some(1000)),
            ("0e99999999999", Some(0)),
            ("1.5", None),
            ("1e-1", None),
            ("1e99999999999", None),
            ("1e-99999999999", None),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1844674407370955162e1", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    fn faults_have_kind_and_offset() {
        let deep = "[".repeat(10_000);
        let cases: &[(&[u8], Kind, usize)] = &[
            (b"", Kind::UnexpectedEnd, 0),
            (b"  ", Kind::UnexpectedEnd, 2),
            (b"{\"model\":", Kind::UnexpectedEnd, 9),
            (b"\"abc", Kind::UnexpectedEnd, 4),
            (b"\"\\", Kind::UnexpectedEnd, 2),
            (b"-", Kind::UnexpectedEnd, 1),
            (b"1.", Kind::UnexpectedEnd, 2),
            (b"tru", Kind::UnexpectedEnd, 3),
            (b"\xef\xbb\xbf{}", Kind::UnexpectedByte, 0),
            (b"{\0}\0", Kind::UnexpectedByte, 1),
            (b"NaN", Kind::UnexpectedByte, 0),
            (b"nan", Kind::UnexpectedByte, 1),
            (b"-Infinity", Kind::UnexpectedByte, 1),
            (b"01", Kind::UnexpectedByte, 1),
            (b"1.e", Kind::UnexpectedByte, 2),
            (b"1e+,", Kind::UnexpectedByte, 3),
            (b"+1", Kind::UnexpectedByte, 0),
            (b"[1,]", Kind::UnexpectedByte, 3),
            (b"[,1]", Kind::UnexpectedByte, 1),
            (b"[1 2]", Kind::UnexpectedByte, 3),
            (b"[1}", Kind::UnexpectedByte, 2),
            (b"{\"a\":1]", Kind::UnexpectedByte, 6),
            (b"{\"a\" 1}", Kind::UnexpectedByte, 5),
            (b"{\"a\":1,}", Kind::UnexpectedByte, 7),
            (b"{a:1}", Kind::UnexpectedByte, 1),
            (b"{'a':1}", Kind::UnexpectedByte, 1),
            (b"]", Kind::UnexpectedByte, 0),
            (b"{} x", Kind::TrailingBytes, 3),
            (b"1 2", Kind::TrailingBytes, 2),
            (b"{}{}", Kind::TrailingBytes, 2),
            (b"\"a\nb\"", Kind::ControlInString, 2),
            (b"{\"a\x1f\":1}", Kind::ControlInString, 3),
            (b"\"\\x\"", Kind::BadEscape, 2),
            (b"\"\\u12g4\"", Kind::BadEscape, 5),
            (b"\"a\\ud800\"", Kind::LoneSurrogate, 2),
            (b"\"a\\ud800b\"", Kind::LoneSurrogate, 2),
            (b"\"\\ud800\\n\"", Kind::LoneSurrogate, 1),
            (b"\"\\ud800\\u0041\"", Kind::LoneSurrogate, 1),
            (b"\"\\ud800\\ud800\"", Kind::LoneSurrogate, 1),
            (b"\"\\ud800\\ud83d\\ude00\"", Kind::LoneSurrogate, 1),
            (b"\"\\udc00\"", Kind::LoneSurrogate, 1),
            (b"\"ab\xff\"", Kind::BadUtf8, 3),
            (b"\"ab\xc3\"", Kind::BadUtf8, 3),
            (b"\"ab\xe2\x82\\n\"", Kind::BadUtf8, 3),
            (b"\"\xc0\xaf\"", Kind::BadUtf8, 1),
            (b"\"\xed\xa0\x80\"", Kind::BadUtf8, 1),
            (b"\"\xf4\x90\x80\x80\"", Kind::BadUtf8, 1),
            (b"\"\x01\xff\"", Kind::ControlInString, 1),
            (b"\"\xff\x01\"", Kind::BadUtf8, 1),
            (b"\"\xc3\x01\"", Kind::BadUtf8, 1),
        ];
        for (document, kind, offset) in cases {
            let error = JsonError { kind: *kind, offset: *offset };
            let (_, end) = scan_every_cut(document);
            assert_eq!(end, Err(error), "{:?}", String::from_utf8_lossy(document));
        }
        let (_, end) = scan(deep.as_bytes());
        assert_eq!(end, Err(JsonError { kind: Kind::TooDeep, offset: MAX_DEPTH }));
    }

    fn nesting_is_allowed_up_to_the_limit() {
        for mixed in ["[", "{\"a\":"] {
            let close = if mixed == "[" { "]" } else { "}" };
            let inner = if mixed == "[" { "" } else { "1" };
            let build = |n: usize| format!("{}{inner}{}", mixed.repeat(n), close.repeat(n));
            assert_eq!(scan(build(MAX_DEPTH).as_bytes()).1, Ok(()));
            let (_, end) = scan(build(MAX_DEPTH + 1).as_bytes());
            assert_eq!(end.map_err(|e| e.kind), Err(Kind::TooDeep));
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod against_serde_json {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Strings of a tree in document order, keys left out (they are compared by the table above).
    fn collect(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::String(text) => out.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            Value::Object(fields) => fields.values().for_each(|field| collect(field, out)),
            _ => {}
        }
    }

    /// A reading of `document` by serde_json: `None` where the two differ on purpose.
    fn verdict(document: &[u8]) -> Option<Result<Value, ()>> {
        match serde_json::from_slice::<Value>(document) {
            Ok(value) => Some(Ok(value)),
            Err(error) => {
                let why = error.to_string();
                let on_purpose = why.contains("out of range") || why.contains("recursion limit");
                (!on_purpose).then_some(Err(()))
            }
        }
    }

    fn compare(document: &[u8], cuts: &[usize]) -> Result<(), TestCaseError> {
        let whole = scan(document);
        let mut slices = Vec::new();
        let mut rest = document;
        for cut in cuts {
            let (head, tail) = rest.split_at(cut % (rest.len() + 1));
            slices.push(head);
            rest = tail;
        }
        slices.push(rest);
        prop_assert_eq!(&scan_slices(slices), &whole);
        let Some(expected) = verdict(document) else {
            return Ok(());
        };
        prop_assert_eq!(whole.1.is_ok(), expected.is_ok(), "{:?}", whole.1);
        if let Ok(value) = expected {
            let mut theirs = Vec::new();
            collect(&value, &mut theirs);
            let mut ours: Vec<_> = whole
                .0
                .into_iter()
                .filter_map(|s| match s {
                    Seen::Text(_, text, _) => Some(text),
                    _ => None,
                })
                .collect();
            // Their objects are sorted, and of equal keys only the last is left.
            theirs.sort();
            ours.sort();
            if !document.contains(&b'{') {
                prop_assert_eq!(ours, theirs);
            } else {
                prop_assert!(theirs.iter().all(|text| ours.binary_search(text).is_ok()));
            }
        }
        Ok(())
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Pieces that make near-JSON: enough to reach every state, often wrongly.
    fn soup() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: &[&[u8]] = &[
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"",
            b"\"a\"",
            b"\"a\":",
            b"\\n",
            b"\\u00e9",
            b"\\ud83d",
            b"\\ude00",
            b"\\",
            b"u",
            b"null",
            b"true",
            b"false",
            b"1",
            b"-",
            b"0",
            b".5",
            b"e3",
            b"E-",
            b" ",
            b"\n",
            b"\t",
            b"\x01",
            b"\xc3\xa9",
            b"\xc3",
            b"\xf0\x9f",
            b"\x98\x80",
            b"\xff",
            b"x",
        ];
        proptest::collection::vec(proptest::sample::select(PIECES), 0..24)
            .prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_tree_is_read_alike(
            value in tree(),
            pretty in any::<bool>(),
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
        ) {
            let document = if pretty {
                serde_json::to_vec_pretty(&value)
            } else {
                serde_json::to_vec(&value)
            };
            compare(&document.unwrap(), &cuts)?;
        }

        #[test]
        fn near_json_gets_the_same_verdict(
            document in soup(),
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
        ) {
            compare(&document, &cuts)?;
        }

        #[test]
        fn one_changed_byte_gets_the_same_verdict(
            value in tree(),
            at in any::<usize>(),
            byte in any::<u8>(),
            cuts in proptest::collection::vec(any::<usize>(), 0..6),
        ) {
            let mut document = serde_json::to_vec(&value).unwrap();
            let at = at % document.len();
            document[at] = byte;
            compare(&document, &cuts)?;
        }
    }
}
