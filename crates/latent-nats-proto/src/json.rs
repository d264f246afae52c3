//! JSON of a peer without allocation: one object, member by member. Nested values are checked and skipped.
//!
//! Names and texts are compared as what they mean, escapes resolved. Nothing here recurses, so depth costs a bit for each level.

use crate::limits::{CONTROL_LINE_BYTES, RECEIPT_FIELDS};

/// Why a text is not the object that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonError {
    Syntax,
    TooDeep,
    TooManyFields,
    Repeated,
    /// A member has another type than it must have, or stands where it must not.
    Member,
}

/// What is allowed inside the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// At most so many levels, the object's own included; no name twice in any object.
    Strict { levels: usize },
    /// Any depth that the text has room for; names may repeat.
    Tolerant,
}

/// The value of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(Text<'a>),
    /// As it is written.
    Number(&'a str),
    Bool(bool),
    Null,
    /// As it is written, braces included.
    Object(&'a str),
    /// As it is written, brackets included.
    Array(&'a str),
}

impl Value<'_> {
    /// The number of an integer token: digits, no sign, fraction or exponent.
    pub(crate) fn integer(&self) -> Result<u64, JsonError> {
        match self {
            Self::Number(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().map_err(|_| JsonError::Member),
            _ => Err(JsonError::Member),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, JsonError> {
        if let Self::Bool(value) = self { Ok(*value) } else { Err(JsonError::Member) }
    }
}

impl<'a> Value<'a> {
    pub(crate) fn text(&self) -> Result<Text<'a>, JsonError> {
        if let Self::Text(text) = self { Ok(*text) } else { Err(JsonError::Member) }
    }
}

/// A string as it is written between its quotes, its escapes already checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// What it means, escapes resolved.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let mut chars = rest.chars();
            let first = chars.next()?;
            if first != '\\' {
                rest = chars.as_str();
                return Some(first);
            }
            let (meaning, bytes) = escape(rest.as_bytes())?;
            rest = rest.get(bytes..)?;
            Some(meaning)
        })
    }

    pub(crate) fn is(self, text: &str) -> bool {
        self.chars().eq(text.chars())
    }

    fn is_same(self, other: Self) -> bool {
        self.chars().eq(other.chars())
    }

    /// As it is written; only for what has no escapes.
    pub(crate) fn raw(self) -> &'a str {
        self.0
    }
}

/// What an escape at the front means and how many bytes it has.
fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    let plain = |c: char| Some((c, 2));
    match bytes {
        [b'\\', b'"', ..] => plain('"'),
        [b'\\', b'\\', ..] => plain('\\'),
        [b'\\', b'/', ..] => plain('/'),
        [b'\\', b'b', ..] => plain('\u{8}'),
        [b'\\', b'f', ..] => plain('\u{c}'),
        [b'\\', b'n', ..] => plain('\n'),
        [b'\\', b'r', ..] => plain('\r'),
        [b'\\', b't', ..] => plain('\t'),
        _ => {
            let first = unit(bytes)?;
            if let Some(c) = char::from_u32(first) {
                return Some((c, 6));
            }
            let second = unit(bytes.get(6..)?)?;
            if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
                return None;
            }
            char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).map(|c| (c, 12))
        }
    }
}

/// The UTF-16 unit of `\uXXXX`.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

/// Hands over every member of the one object that `text` is.
pub(crate) fn object<'a>(
    text: &'a str,
    rules: Rules,
    mut member: impl FnMut(Text<'a>, Value<'a>) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.space();
    scanner.members(rules, &mut member)?;
    scanner.space();
    if scanner.at == text.len() { Ok(()) } else { Err(JsonError::Syntax) }
}

/// Hands over every value of the one array that `text` is.
pub(crate) fn array<'a>(text: &'a str, rules: Rules, mut element: impl FnMut(Value<'a>) -> Result<(), JsonError>) -> Result<(), JsonError> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.space();
    scanner.expect(b'[')?;
    scanner.space();
    while !scanner.accept(b']') {
        element(scanner.value(rules)?)?;
        scanner.space();
        if scanner.accept(b',') {
            scanner.space();
            if scanner.peek() == Some(b']') {
                return Err(JsonError::Syntax);
            }
        } else if scanner.peek() != Some(b']') {
            return Err(JsonError::Syntax);
        }
    }
    scanner.space();
    if scanner.at == text.len() { Ok(()) } else { Err(JsonError::Syntax) }
}

/// The deepest that a text of one control line can be.
const LEVELS_MAX: usize = CONTROL_LINE_BYTES.max_usize();

/// For each open level whether it is an object.
struct Levels {
    objects: [u64; LEVELS_MAX / 64],
    depth: usize,
}

impl Levels {
    fn open(&mut self, is_object: bool, levels_max: usize) -> Result<(), JsonError> {
        if self.depth >= levels_max {
            return Err(JsonError::TooDeep);
        }
        let (word, bit) = (self.depth / 64, 1_u64 << (self.depth % 64));
        let word = self.objects.get_mut(word).ok_or(JsonError::TooDeep)?;
        *word = if is_object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn is_object(&self) -> bool {
        let Some(top) = self.depth.checked_sub(1) else { return false };
        self.objects.get(top / 64).is_some_and(|word| word & (1 << (top % 64)) != 0)
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[derive(Clone, Copy)]
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes past `byte` if it is next.
    fn accept(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.accept(byte) { Ok(()) } else { Err(JsonError::Syntax) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn members(&mut self, rules: Rules, member: &mut dyn FnMut(Text<'a>, Value<'a>) -> Result<(), JsonError>) -> Result<(), JsonError> {
        let mut names: [Option<Text<'a>>; RECEIPT_FIELDS.max_usize()] = [None; RECEIPT_FIELDS.max_usize()];
        let mut count = 0;
        self.expect(b'{')?;
        self.space();
        if self.accept(b'}') {
            return Ok(());
        }
        loop {
            let name = self.name()?;
            if let Rules::Strict { .. } = rules {
                let earlier = names.get(..count).unwrap_or_default();
                if earlier.iter().flatten().any(|earlier| earlier.is_same(name)) {
                    return Err(JsonError::Repeated);
                }
                *names.get_mut(count).ok_or(JsonError::TooManyFields)? = Some(name);
                count += 1;
            }
            let value = self.value(rules)?;
            member(name, value)?;
            self.space();
            if self.accept(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
            self.space();
        }
    }

    /// A member's name, its colon, and the space behind.
    fn name(&mut self) -> Result<Text<'a>, JsonError> {
        let name = self.string()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(name)
    }

    fn value(&mut self, rules: Rules) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        let kind = self.peek();
        match kind {
            Some(b'{' | b'[') => self.skip_nested(rules)?,
            _ => return self.scalar(),
        }
        let written = self.text.get(start..self.at).ok_or(JsonError::Syntax)?;
        Ok(if kind == Some(b'{') { Value::Object(written) } else { Value::Array(written) })
    }

    /// Checks an object or an array and everything in it.
    fn skip_nested(&mut self, rules: Rules) -> Result<(), JsonError> {
        let levels_max = match rules {
            Rules::Strict { levels } => levels.saturating_sub(1),
            Rules::Tolerant => LEVELS_MAX,
        };
        let mut levels = Levels { objects: [0; LEVELS_MAX / 64], depth: 0 };
        loop {
            self.space();
            self.begin_value(rules, &mut levels, levels_max)?;
            if !self.end_values(&mut levels)? {
                return Ok(());
            }
        }
    }

    /// Goes past a scalar or an empty container, or into a container, up to its first value.
    fn begin_value(&mut self, rules: Rules, levels: &mut Levels, levels_max: usize) -> Result<(), JsonError> {
        loop {
            let is_object = match self.peek() {
                Some(b'{') => true,
                Some(b'[') => false,
                _ => return self.scalar().map(|_| ()),
            };
            if is_object && rules != Rules::Tolerant {
                // Looks ahead over this one object; its inner ones are looked at when they are come to.
                let mut ahead = *self;
                ahead.distinct_names()?;
            }
            levels.open(is_object, levels_max)?;
            self.at += 1;
            self.space();
            if self.accept(if is_object { b'}' } else { b']' }) {
                levels.close();
                return Ok(());
            }
            if is_object {
                self.name()?;
            }
        }
    }

    /// Goes past what follows a value, up to the next one. False when the outermost container is closed.
    fn end_values(&mut self, levels: &mut Levels) -> Result<bool, JsonError> {
        while levels.depth > 0 {
            self.space();
            let is_object = levels.is_object();
            if self.accept(b',') {
                self.space();
                if is_object {
                    self.name()?;
                }
                return Ok(true);
            }
            self.expect(if is_object { b'}' } else { b']' })?;
            levels.close();
        }
        Ok(false)
    }

    fn distinct_names(&mut self) -> Result<(), JsonError> {
        let mut names: [Option<Text<'a>>; RECEIPT_FIELDS.max_usize()] = [None; RECEIPT_FIELDS.max_usize()];
        let mut count = 0;
        self.members(Rules::Tolerant, &mut |name, _| {
            if names.get(..count).unwrap_or_default().iter().flatten().any(|earlier| earlier.is_same(name)) {
                return Err(JsonError::Repeated);
            }
            *names.get_mut(count).ok_or(JsonError::TooManyFields)? = Some(name);
            count += 1;
            Ok(())
        })
    }

    fn scalar(&mut self) -> Result<Value<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.number().map(Value::Number),
        }
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, JsonError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(JsonError::Syntax);
        }
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<Text<'a>, JsonError> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.peek().ok_or(JsonError::Syntax)? {
                b'"' => break,
                b'\\' => {
                    let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
                    let (_, bytes) = escape(rest).ok_or(JsonError::Syntax)?;
                    self.at += bytes;
                }
                0..=0x1f => return Err(JsonError::Syntax),
                _ => self.at += 1,
            }
        }
        let text = self.text.get(start..self.at).ok_or(JsonError::Syntax)?;
        self.at += 1;
        Ok(Text(text))
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        self.accept(b'-');
        if !self.accept(b'0') {
            self.digits()?;
        }
        if self.accept(b'.') {
            self.digits()?;
        }
        if self.accept(b'e') || self.accept(b'E') {
            let _ = self.accept(b'+') || self.accept(b'-');
            self.digits()?;
        }
        self.text.get(start..self.at).ok_or(JsonError::Syntax)
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(JsonError::Syntax) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_its_values_and_nothing_else() {
        let table: [(&str, Option<usize>); 14] = [
            ("[]", Some(0)),
            (" [ ] ", Some(0)),
            (r#"["a"]"#, Some(1)),
            (r#"[ 1 , {"a":[1,2]} , [] ,null]"#, Some(4)),
            ("[1,]", None),
            ("[,1]", None),
            ("[1 2]", None),
            ("[1", None),
            ("1]", None),
            ("[1]]", None),
            ("[1] x", None),
            (r#"[{"a":1,"a":2,}]"#, None),
            ("{}", None),
            ("", None),
        ];
        for (text, expected) in table {
            let mut count = 0;
            let read = array(text, Rules::Strict { levels: 8 }, |_| {
                count += 1;
                Ok(())
            });
            assert_eq!(read.ok().map(|()| count), expected, "{text}");
        }
    }
}
