use crate::shortening::MARK;
use minijinja::Value;

/// Arrays and objects that may stand inside each other, as in the filter's own scanner.
const MAX_DEPTH: usize = 128;

/// Why a text was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonFault {
    /// Python raises `JSONDecodeError`, too.
    Malformed,
    /// Python reads it, but we cannot hold it: an integer beyond 128 bits, half a surrogate pair, deep nesting, or the
    /// noncharacter that marks shortened texts.
    BeyondUs,
}

/// Reads `text` as `json.loads` does. Of duplicate keys the last value wins, at the place of the first.
pub(crate) fn loads(text: &str) -> Result<Value, JsonFault> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.peek().is_some() { Err(JsonFault::Malformed) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    /// Always at a character's first byte.
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn advance(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn take(&mut self, expected: u8) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.advance(1);
        }
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.advance(1);
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonFault> {
        if depth > MAX_DEPTH {
            return Err(JsonFault::BeyondUs);
        }
        match self.peek() {
            Some(b'"') => {
                self.advance(1);
                self.string().map(Value::from)
            }
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            _ => self.literal(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonFault> {
        self.advance(1);
        let mut fields: Vec<(String, Value)> = Vec::new();
        self.skip_space();
        if !self.take(b'}') {
            loop {
                if !self.take(b'"') {
                    return Err(JsonFault::Malformed);
                }
                let key = self.string()?;
                self.skip_space();
                if !self.take(b':') {
                    return Err(JsonFault::Malformed);
                }
                self.skip_space();
                fields.push((key, self.value(depth.saturating_add(1))?));
                self.skip_space();
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(JsonFault::Malformed);
                }
                self.skip_space();
            }
        }
        Ok(Value::from_pairs(fields))
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonFault> {
        self.advance(1);
        let mut items: Vec<Value> = Vec::new();
        self.skip_space();
        if !self.take(b']') {
            loop {
                items.push(self.value(depth.saturating_add(1))?);
                self.skip_space();
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Err(JsonFault::Malformed);
                }
                self.skip_space();
            }
        }
        Ok(Value::from(items))
    }

    fn literal(&mut self) -> Result<Value, JsonFault> {
        let literals = [
            ("null", Value::from(())),
            ("true", Value::from(true)),
            ("false", Value::from(false)),
            ("NaN", Value::from(f64::NAN)),
            ("Infinity", Value::from(f64::INFINITY)),
            ("-Infinity", Value::from(f64::NEG_INFINITY)),
        ];
        for (name, value) in literals {
            if self.rest().starts_with(name) {
                self.advance(name.len());
                return Ok(value);
            }
        }
        self.number()
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.advance(1);
        }
        self.at.saturating_sub(start)
    }

    fn number(&mut self) -> Result<Value, JsonFault> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') && self.digits() == 0 {
            return Err(JsonFault::Malformed);
        }
        let whole = self.at;
        if self.take(b'.') && self.digits() == 0 {
            return Err(JsonFault::Malformed);
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(JsonFault::Malformed);
            }
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        if self.at == whole {
            let integer: i128 = written.parse().map_err(|_| JsonFault::BeyondUs)?;
            Ok(Value::from(integer))
        } else {
            let float: f64 = written.parse().map_err(|_| JsonFault::Malformed)?;
            Ok(Value::from(float))
        }
    }

    /// The string whose opening quote was taken.
    fn string(&mut self) -> Result<String, JsonFault> {
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let special = |byte: &u8| matches!(*byte, b'"' | b'\\' | 0..=0x1f);
            let plain = rest.as_bytes().iter().position(special);
            let plain = plain.ok_or(JsonFault::Malformed)?;
            out.push_str(rest.get(..plain).unwrap_or_default());
            self.advance(plain);
            match self.peek() {
                Some(b'"') => {
                    self.advance(1);
                    return if out.contains(MARK) { Err(JsonFault::BeyondUs) } else { Ok(out) };
                }
                Some(b'\\') => {
                    self.advance(1);
                    out.push(self.escape()?);
                }
                _ => return Err(JsonFault::Malformed),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonFault> {
        let byte = self.peek().ok_or(JsonFault::Malformed)?;
        self.advance(1);
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                let code = if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
                    self.advance(2);
                    let second = self.hex()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return Err(JsonFault::BeyondUs);
                    }
                    let high = (first & 0x3ff) << 10;
                    (high | (second & 0x3ff)).saturating_add(0x1_0000)
                } else {
                    first
                };
                char::from_u32(code).ok_or(JsonFault::BeyondUs)?
            }
            _ => return Err(JsonFault::Malformed),
        })
    }

    fn hex(&mut self) -> Result<u32, JsonFault> {
        let digits = self.rest().get(..4).ok_or(JsonFault::Malformed)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(JsonFault::Malformed);
        }
        self.advance(4);
        u32::from_str_radix(digits, 16).map_err(|_| JsonFault::Malformed)
    }
}
