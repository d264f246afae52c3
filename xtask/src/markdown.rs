//! The little of Markdown that checks need: headings, links and table rows, outside code blocks.

/// Lines that are not inside a fenced code block, with their number counted from 1.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The lines of the fenced block whose language is `language`.
pub(crate) fn fenced<'a>(text: &'a str, language: &str) -> Option<Vec<&'a str>> {
    let mut lines = text.lines().skip_while(|line| line.trim_start().strip_prefix("```") != Some(language));
    lines.next()?;
    Some(lines.take_while(|line| !line.trim_start().starts_with("```")).collect())
}

/// The anchors of a page's headings, as the usual renderers make them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let headings = prose_lines(text).map(|(_, line)| line).filter(|line| line.starts_with('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Targets of `[text](target)` in one line, code spans left out.
pub(crate) fn link_targets(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    outside_code.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// The cells of a table row, or nothing for any other line, header separators included.
pub(crate) fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    let is_separator = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')));
    (!is_separator).then_some(cells)
}

/// The text of a cell that is one code span.
pub(crate) fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|inner| !inner.contains('`'))
}

/// `target` of a link on `page`, as a path from the root and an anchor. `None` when it leaves the project's files.
pub(crate) fn resolve(page: &str, target: &str) -> Option<(String, Option<String>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor.to_owned())));
    if file.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_follow_the_headings_outside_code() {
        assert_eq!(anchors("# The *record*: one\n```\n# not a heading\n```\n## Two-way `x_y`"), ["the-record-one", "two-way-x_y"]);
    }

    #[test]
    fn links_are_found_outside_code_spans() {
        assert_eq!(link_targets("see [a](b.md#c) and `[x](y)` and [d](e)"), ["b.md#c", "e"]);
    }

    #[test]
    fn links_resolve_against_the_folder_of_their_page() {
        let cases = [
            ("docs/a.md", "b.md#c", Some(("docs/b.md", Some("c")))),
            ("docs/a.md", "../README.md", Some(("README.md", None))),
            ("docs/a.md", "#here", Some(("docs/a.md", Some("here")))),
            ("README.md", "docs/", Some(("docs", None))),
            ("README.md", "https://example.org/x", None),
        ];
        for (page, target, expected) in cases {
            let expected = expected.map(|(file, anchor)| (file.to_owned(), anchor.map(str::to_owned)));
            assert_eq!(resolve(page, target), expected, "{target}");
        }
    }

    #[test]
    fn a_table_row_is_its_cells_and_a_separator_is_none() {
        assert_eq!(cells("| a | `b` |  |"), Some(vec!["a", "`b`", ""]));
        assert_eq!((cells("|---|:-:|"), cells("text")), (None, None));
        assert_eq!((code("`b`"), code("b"), code("`a` `b`")), (Some("b"), None, None));
    }

    #[test]
    fn a_fenced_block_is_found_by_its_language() {
        assert_eq!(fenced("x\n```ids\na\nb\n```\nc", "ids"), Some(vec!["a", "b"]));
        assert_eq!(fenced("```text\na\n```", "ids"), None);
    }
}
