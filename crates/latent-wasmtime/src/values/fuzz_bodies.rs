//! The body of the fuzz target for the form of values. See `crate::fuzz_bodies`.

use super::shape::{Named, Shape, Signature};
use super::{ValuesLimits, ValuesProblem};

/// Longest text of a refusal: its fixed words, a place, a name and a parameter.
const REFUSAL_BYTES_MAX: usize = 1_024;
/// Shapes in one input; what is beyond is `bool`.
const SHAPES_MAX: usize = 256;

/// The shapes of a function, one letter each, then, behind the first zero byte, a document: what is read can be written, and reads back
/// as the same.
pub(crate) fn values(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (shapes, document) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let signature = signature(shapes);
    let values = match signature.decode(document, &ValuesLimits::default()) {
        Ok(values) => values,
        Err(refusal) => return assert!(refusal.to_string().len() <= REFUSAL_BYTES_MAX, "a refusal of {} bytes", refusal.to_string().len()),
    };
    // Only the text can be larger than what was read: `1e20` is written in digits.
    let written = match signature.encode(&values, &ValuesLimits::default()) {
        Ok(written) => written,
        Err(refusal) => {
            assert!(matches!(refusal.problem, ValuesProblem::OverLimit { limit: "values_document_bytes", .. }), "{refusal}");
            return;
        }
    };
    assert_eq!(signature.decode(&written, &ValuesLimits::default()).as_ref(), Ok(&values), "what was written reads back as another");
}

/// A function that takes and returns the shapes that the letters stand for.
fn signature(letters: &[u8]) -> Signature {
    let mut letters = Letters { left: letters.iter(), shapes: 0 };
    let mut shapes = Vec::new();
    while !letters.left.as_slice().is_empty() && shapes.len() < 16 {
        shapes.push(letters.shape(1));
    }
    let params = shapes.iter().enumerate().map(|(index, shape)| (name(index), shape.clone())).collect();
    Signature { params, results: shapes }
}

fn name(index: usize) -> Box<str> {
    format!("n{index}").into()
}

/// Letters that are not read yet. Every text of letters means something.
struct Letters<'a> {
    left: std::slice::Iter<'a, u8>,
    shapes: usize,
}

impl Letters<'_> {
    fn shape(&mut self, depth: usize) -> Shape {
        self.shapes += 1;
        if depth > 40 || self.shapes > SHAPES_MAX {
            return Shape::Bool;
        }
        match self.left.next().unwrap_or(&b'b') {
            b'1' => Shape::S8,
            b'2' => Shape::U8,
            b'3' => Shape::S16,
            b'4' => Shape::U16,
            b'5' => Shape::S32,
            b'6' => Shape::U32,
            b'7' => Shape::S64,
            b'8' => Shape::U64,
            b'f' => Shape::F32,
            b'd' => Shape::F64,
            b'c' => Shape::Char,
            b's' => Shape::Text,
            b'L' => Shape::List(Box::new(self.shape(depth + 1))),
            b'O' => Shape::Option(Box::new(self.shape(depth + 1))),
            b'R' => Shape::Result { ok: self.branch(depth).map(Box::new), err: self.branch(depth).map(Box::new) },
            b'(' => Shape::Tuple(self.until(b')', |letters| letters.shape(depth + 1)).into_iter().map(|(_, shape)| shape).collect()),
            b'{' => Shape::Record(Named::new(self.until(b'}', |letters| letters.shape(depth + 1)))),
            b'<' => Shape::Variant(Named::new(self.until(b'>', |letters| letters.branch(depth)))),
            b'E' => Shape::Enum(self.names()),
            b'F' => Shape::Flags(self.names()),
            _ => Shape::Bool,
        }
    }

    /// Parts up to the letter that closes them, at least one, each with a name of its own.
    fn until<T>(&mut self, close: u8, mut part: impl FnMut(&mut Self) -> T) -> Vec<(Box<str>, T)> {
        let mut parts = vec![(name(0), part(self))];
        while parts.len() < SHAPES_MAX {
            match self.left.as_slice().first() {
                None => break,
                Some(next) if *next == close => {
                    self.left.next();
                    break;
                }
                Some(_) => parts.push((name(parts.len()), part(self))),
            }
        }
        parts
    }

    fn branch(&mut self, depth: usize) -> Option<Shape> {
        if self.left.as_slice().first() == Some(&b'_') {
            self.left.next();
            return None;
        }
        Some(self.shape(depth + 1))
    }

    fn names(&mut self) -> Named<()> {
        let count = usize::from(self.left.next().unwrap_or(&b'1') % 8) + 1;
        Named::new((0..count).map(|index| (name(index), ())).collect())
    }
}

/// Sound inputs that reach every shape.
#[cfg(test)]
pub(crate) fn corpus() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let inputs: [(&'static str, &str, &str); 6] = [
        ("scalars", "b12345678fdcs", r#"[true,-1,2,-3,4,-5,6,"-7","8","1.5","-inf","é","a\"\u0001\ud83d\ude00"]"#),
        ("compounds", "L2(2s){2Os}", r#"[[1,2,3],[1,"x"],{"n0":1,"n1":{"some":"y"}}]"#),
        ("choices", "<_2>E3F3", r#"[{"value":7,"case":"n1"},"n2",["n0","n3"]]"#),
        ("branches", "O2RsR__", r#"[{"none":null},{"err":{"ok":null}}]"#),
        ("deep", "LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLs", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"x\"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"),
        ("nothing", "", " [ ] "),
    ];
    inputs.map(|(name, shapes, document)| ("values", name, [shapes.as_bytes(), b"\0", document.as_bytes()].concat())).to_vec()
}

#[test]
fn every_input_of_the_corpus_is_read() {
    for (_, name, input) in corpus() {
        let mut parts = input.splitn(2, |byte| *byte == 0);
        let signature = signature(parts.next().unwrap());
        let read = signature.decode(parts.next().unwrap(), &ValuesLimits::default());
        assert!(read.is_ok(), "{name}: {}", read.unwrap_err());
    }
}
