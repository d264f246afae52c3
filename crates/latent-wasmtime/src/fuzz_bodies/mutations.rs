//! Damage to sound inputs, made again by its seed.

use std::ops::Range;

use wasmparser::{Parser, Payload};

/// splitmix64: its whole state is the seed that a failure names.
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 12] = [0, 1, 2, 0x0b, 0x20, 0x40, 0x60, 0x70, 0x7f, 0x80, 0xff, b'"'];
        match self.below(2) {
            0 => TELLING[self.below(TELLING.len())],
            _ => u8::try_from(self.below(256)).unwrap(),
        }
    }
}

/// Any bytes changed, removed, doubled, cut off, or replaced by those of another input.
pub(super) fn bytes(content: &[u8], others: &[&[u8]], seeded: &mut Seeded) -> Vec<u8> {
    let mut out = content.to_vec();
    for _ in 0..=seeded.below(3) {
        let at = seeded.below(out.len());
        let end = (at + 1 + seeded.below(16)).min(out.len());
        match seeded.below(7) {
            _ if out.is_empty() => out.extend_from_slice(content),
            0 | 1 => out[at] ^= 1 << seeded.below(8),
            2 => out[at] = seeded.byte(),
            3 => drop(out.drain(at..end)),
            4 => drop(out.splice(at..at, out[at..end].to_vec())),
            5 => out.insert(at, seeded.byte()),
            _ => {
                let other = others[seeded.below(others.len())];
                let from = seeded.below(other.len());
                let until = (from + 1 + seeded.below(64)).min(other.len());
                out.splice(at..end, other.get(from..until).unwrap_or_default().iter().copied());
            }
        }
    }
    out
}

/// The contents of one section of a component or of a module in it.
struct Section {
    content: Range<usize>,
    /// Directly in the component, so that it can be taken out whole.
    outermost: bool,
}

fn sections(component: &[u8]) -> Vec<Section> {
    let (mut sections, mut depth) = (Vec::new(), 0_usize);
    for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
        let body = if let Payload::CodeSectionEntry(body) = &payload { Some(body.range()) } else { None };
        // A section of another component or module comes before its own begin.
        let nested = matches!(payload, Payload::ModuleSection { .. } | Payload::ComponentSection { .. });
        let content = payload.as_section().map(|(_, content)| content);
        let outermost = depth == 1 && body.is_none();
        sections.extend(content.or(body).map(|content| Section { content, outermost: outermost || (nested && depth == 1) }));
    }
    sections.retain(|section| !section.content.is_empty());
    sections
}

/// Damage that leaves the frame of the sections sound more often than not, so that it reaches what lies behind the frame.
pub(super) fn component(content: &[u8], others: &[&[u8]], seeded: &mut Seeded) -> Vec<u8> {
    let sections = sections(content);
    if sections.is_empty() || seeded.below(4) == 0 {
        return bytes(content, others, seeded);
    }
    let mut out = content.to_vec();
    if seeded.below(4) == 0 {
        let outermost: Vec<&Section> = sections.iter().filter(|section| section.outermost).collect();
        let chosen = seeded.below(outermost.len());
        // A section's frame begins where the one before it ended; the first behind magic and version.
        let begin = if chosen == 0 { 8 } else { outermost[chosen - 1].content.end };
        let whole = begin..outermost[chosen].content.end;
        let copy = out[whole.clone()].to_vec();
        match seeded.below(3) {
            0 => drop(out.drain(whole)),
            1 => drop(out.splice(begin..begin, copy)),
            _ => out.extend(copy),
        }
        return out;
    }
    for _ in 0..=seeded.below(3) {
        let content = sections[seeded.below(sections.len())].content.clone();
        let at = content.start + seeded.below(content.len());
        match seeded.below(3) {
            0 => out[at] ^= 1 << seeded.below(8),
            1 => out[at] = seeded.byte(),
            _ => out[at] = out[content.start + seeded.below(content.len())],
        }
    }
    out
}
