//! Reads one table: asks for keys, checks types and ranges, and at the end names every key nobody asked for.

use std::ops::Range;

use latent_core::{CoreError, Limit};
use toml_edit::{Item, TableLike, Value};

use super::place::Place;
use super::problem::{Fault, Problem};

/// A value and the byte of the file at which it stands.
#[derive(Debug, Clone)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// Collects problems while the file is read, so that one mistake does not hide the next.
#[derive(Debug)]
pub(super) struct Report<'t> {
    text: &'t str,
    pub(super) problems: Vec<Problem>,
}

impl<'t> Report<'t> {
    /// A report on `text`, empty so far.
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// The line of a byte, from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        Place::of(self.text, at).line
    }

    pub(super) fn push(&mut self, at: usize, fault: Fault) {
        self.problems.push(Problem { at: Some(at), fault });
    }
}

/// What may be written short or whole.
pub(super) enum TextOrTable<'d> {
    Text(Spanned<&'d str>),
    Table(Section<'d>),
}

/// One table on its way to being read.
pub(super) struct Section<'d> {
    /// As people find it: `[node]`, `[[topic]] 2`, `budget of [[trigger]] 1`.
    label: String,
    table: &'d dyn TableLike,
    at: usize,
    asked: Vec<&'static str>,
}

impl<'d> Section<'d> {
    pub(super) fn new(label: String, table: &'d dyn TableLike, at: usize) -> Self {
        Self { label, table, at, asked: Vec::new() }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Where the key stands, or the table if it is missing.
    pub(super) fn place_of(&self, key: &str) -> usize {
        self.table.key(key).and_then(|key| key.span()).map_or(self.at, |span| span.start)
    }

    fn item(&mut self, key: &'static str) -> Option<&'d Item> {
        self.asked.push(key);
        self.table.get(key).filter(|item| !item.is_none())
    }

    fn wrong_type(&self, report: &mut Report<'_>, key: &'static str, expected: &'static str, item: &Item) {
        let fault = Fault::WrongType { table: self.label.clone(), key, expected, found: item.type_name() };
        report.push(self.place_of(key), fault);
    }

    /// A string, if the key is there.
    pub(super) fn text(&mut self, report: &mut Report<'_>, key: &'static str) -> Option<Spanned<&'d str>> {
        let item = self.item(key)?;
        let Some(value) = item.as_str() else {
            self.wrong_type(report, key, "a string", item);
            return None;
        };
        Some(Spanned { value, at: start(item.span(), self.place_of(key)) })
    }

    /// A string or a table, if the key is there.
    pub(super) fn text_or_table(&mut self, report: &mut Report<'_>, key: &'static str) -> Option<TextOrTable<'d>> {
        let item = self.item(key)?;
        let label = format!("{key} of {}", self.label);
        self.text_or_table_in(report, (key, label), item, self.place_of(key))
    }

    /// Every member of a table whose keys are the operator's own: each a string or a table. `key` is the table's own.
    pub(super) fn members(self, report: &mut Report<'_>, key: &'static str) -> Vec<(Spanned<&'d str>, TextOrTable<'d>)> {
        let mut members = Vec::new();
        for (name, item) in self.table.iter() {
            let at = self.place_of(name);
            if let Some(member) = self.text_or_table_in(report, (key, format!("{name} in {}", self.label)), item, at) {
                members.push((Spanned { value: name, at }, member));
            }
        }
        members
    }

    fn text_or_table_in(
        &self,
        report: &mut Report<'_>,
        (key, label): (&'static str, String),
        item: &'d Item,
        at: usize,
    ) -> Option<TextOrTable<'d>> {
        let start = start(item.span(), at);
        match (item.as_str(), item.as_table_like()) {
            (Some(value), _) => Some(TextOrTable::Text(Spanned { value, at: start })),
            (None, Some(table)) => Some(TextOrTable::Table(Section::new(label, table, start))),
            (None, None) => {
                let (table, found) = (self.label.clone(), item.type_name());
                report.push(at, Fault::WrongType { table, key, expected: "a string or a table", found });
                None
            }
        }
    }

    /// A string that must be there and not empty.
    pub(super) fn required_text(&mut self, report: &mut Report<'_>, key: &'static str, example: &'static str) -> Option<Spanned<&'d str>> {
        if !self.is_present(key) {
            self.asked.push(key);
            report.push(self.at, Fault::Missing { table: self.label.clone(), key, example });
            return None;
        }
        let text = self.text(report, key)?;
        if text.value.is_empty() {
            report.push(text.at, Fault::Empty { table: self.label.clone(), key, example });
            return None;
        }
        Some(text)
    }

    /// A required string that becomes a name.
    pub(super) fn required_name<T>(
        &mut self,
        report: &mut Report<'_>,
        key: &'static str,
        example: &'static str,
        parse: impl Fn(&str) -> Result<T, CoreError>,
    ) -> Option<Spanned<T>> {
        let text = self.required_text(report, key, example)?;
        parsed(report, text, parse)
    }

    /// An optional string that becomes a name.
    pub(super) fn name<T>(
        &mut self,
        report: &mut Report<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, CoreError>,
    ) -> Option<Spanned<T>> {
        let text = self.text(report, key)?;
        parsed(report, text, parse)
    }

    /// A whole number in the limit's range, if the key is there.
    pub(super) fn integer(&mut self, report: &mut Report<'_>, key: &'static str, limit: &Limit) -> Option<Spanned<u64>> {
        let item = self.item(key)?;
        let Some(value) = item.as_integer() else {
            self.wrong_type(report, key, "a whole number", item);
            return None;
        };
        let at = start(item.span(), self.place_of(key));
        match u64::try_from(value).ok().and_then(|value| limit.check(value).ok()) {
            Some(value) => Some(Spanned { value, at }),
            None => {
                report.push(at, Fault::OutOfRange { table: self.label.clone(), key, value, limit: *limit });
                None
            }
        }
    }

    /// A whole number in the limit's range, or the limit's default.
    pub(super) fn integer_or_default(&mut self, report: &mut Report<'_>, key: &'static str, limit: &Limit) -> Spanned<u64> {
        let at = self.place_of(key);
        self.integer(report, key, limit).unwrap_or(Spanned { value: limit.default, at })
    }

    /// A whole number in the limit's range that must be there.
    pub(super) fn required_integer(
        &mut self,
        report: &mut Report<'_>,
        key: &'static str,
        limit: &Limit,
        example: &'static str,
    ) -> Option<Spanned<u64>> {
        if !self.is_present(key) {
            self.asked.push(key);
            report.push(self.at, Fault::Missing { table: self.label.clone(), key, example });
            return None;
        }
        self.integer(report, key, limit)
    }

    /// Yes or no, if the key is there.
    pub(super) fn boolean(&mut self, report: &mut Report<'_>, key: &'static str) -> Option<bool> {
        let item = self.item(key)?;
        let value = item.as_bool();
        if value.is_none() {
            self.wrong_type(report, key, "true or false", item);
        }
        value
    }

    /// A table, if the key is there.
    pub(super) fn table(&mut self, report: &mut Report<'_>, key: &'static str) -> Option<Section<'d>> {
        let item = self.item(key)?;
        let Some(table) = item.as_table_like() else {
            self.wrong_type(report, key, "a table", item);
            return None;
        };
        let label = if self.label.is_empty() { format!("[{key}]") } else { format!("{key} of {}", self.label) };
        Some(Section::new(label, table, start(item.span(), self.place_of(key))))
    }

    /// Every table of a list, written as `[[key]]` or as an inline list.
    pub(super) fn tables(&mut self, report: &mut Report<'_>, key: &'static str) -> Vec<Section<'d>> {
        let Some(item) = self.item(key) else { return Vec::new() };
        let fallback = self.place_of(key);
        let label = |number: usize| match &*self.label {
            "" => format!("[[{key}]] {number}"),
            outer => format!("{key} {number} of {outer}"),
        };
        if let Some(tables) = item.as_array_of_tables() {
            let numbered = tables.iter().enumerate();
            return numbered.map(|(at, table)| Section::new(label(at + 1), table, start(table.span(), fallback))).collect();
        }
        if let Some(table) = item.as_table_like() {
            report.push(fallback, Fault::SingleTable { table: self.label.clone(), key });
            // Read all the same: what refers to it is not dangling.
            return vec![Section::new(label(1), table, start(item.span(), fallback))];
        }
        let Some(values) = item.as_array() else {
            self.wrong_type(report, key, "a list of tables", item);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let at = start(value.span(), fallback);
            match value.as_inline_table() {
                Some(table) => sections.push(Section::new(label(index + 1), table, at)),
                None => self.wrong_element(report, key, "a table", value, at),
            }
        }
        sections
    }

    /// Every string of a list that must be there and not empty.
    pub(super) fn required_texts(&mut self, report: &mut Report<'_>, key: &'static str, example: &'static str) -> Vec<Spanned<&'d str>> {
        let Some(item) = self.item(key) else {
            report.push(self.at, Fault::Missing { table: self.label.clone(), key, example });
            return Vec::new();
        };
        let Some(values) = item.as_array() else {
            self.wrong_type(report, key, "a list of strings", item);
            return Vec::new();
        };
        if values.is_empty() {
            report.push(self.place_of(key), Fault::Empty { table: self.label.clone(), key, example });
        }
        self.elements(report, key, values)
    }

    /// Every string of a list, if the key is there.
    pub(super) fn texts(&mut self, report: &mut Report<'_>, key: &'static str) -> Vec<Spanned<&'d str>> {
        let Some(item) = self.item(key) else { return Vec::new() };
        let Some(values) = item.as_array() else {
            self.wrong_type(report, key, "a list of strings", item);
            return Vec::new();
        };
        self.elements(report, key, values)
    }

    fn elements(&self, report: &mut Report<'_>, key: &'static str, values: &'d toml_edit::Array) -> Vec<Spanned<&'d str>> {
        let mut texts = Vec::new();
        for value in values {
            let at = start(value.span(), self.place_of(key));
            match value.as_str() {
                Some(text) => texts.push(Spanned { value: text, at }),
                None => self.wrong_element(report, key, "a string", value, at),
            }
        }
        texts
    }

    fn wrong_element(&self, report: &mut Report<'_>, key: &'static str, expected: &'static str, value: &Value, at: usize) {
        report.push(at, Fault::WrongType { table: self.label.clone(), key, expected, found: value.type_name() });
    }

    pub(super) fn is_present(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|item| !item.is_none())
    }

    /// Whether a key is exactly this text. It is not asked for yet.
    pub(super) fn says(&self, key: &str, text: &str) -> bool {
        self.table.get(key).and_then(|item| item.as_str()) == Some(text)
    }

    /// Refuses keys of later versions by name, so that nobody believes they work.
    pub(super) fn refuse_later(&mut self, report: &mut Report<'_>, keys: &[(&'static str, &'static str)]) {
        for (key, instead) in keys {
            if self.item(key).is_some() {
                let fault = Fault::NotBuilt { table: self.label.clone(), setting: (*key).to_owned(), instead };
                report.push(self.place_of(key), fault);
            }
        }
    }

    /// Leaves keys of another engine unread where a broader problem has already been told.
    pub(super) fn pass_over(&mut self, keys: impl IntoIterator<Item = &'static str>) {
        self.asked.extend(keys);
    }

    /// Refuses every key nobody asked for, suggesting the nearest one. Keys of later versions are not suggested.
    pub(super) fn finish(self, report: &mut Report<'_>, later: &[(&'static str, &'static str)]) {
        let mut known: Vec<_> = self.asked.iter().copied().filter(|key| later.iter().all(|(name, _)| name != key)).collect();
        known.dedup();
        for (key, _) in self.table.iter().filter(|(key, _)| !self.asked.contains(key)) {
            let fault = Fault::UnknownKey {
                table: self.label.clone(),
                key: key.to_owned(),
                nearest: nearest(key, known.iter().copied()).map(str::to_owned),
                known: known.clone(),
            };
            report.push(self.place_of(key), fault);
        }
    }
}

fn parsed<T>(report: &mut Report<'_>, text: Spanned<&str>, parse: impl Fn(&str) -> Result<T, CoreError>) -> Option<Spanned<T>> {
    match parse(text.value) {
        Ok(value) => Some(Spanned { value, at: text.at }),
        Err(error) => {
            report.push(text.at, Fault::Name(error));
            None
        }
    }
}

/// Parses every text; those that cannot be are reported and left out.
pub(super) fn parsed_all<T>(
    report: &mut Report<'_>,
    texts: Vec<Spanned<&str>>,
    parse: impl Fn(&str) -> Result<T, CoreError>,
) -> Vec<Spanned<T>> {
    texts.into_iter().filter_map(|text| parsed(report, text, &parse)).collect()
}

fn start(span: Option<Range<usize>>, fallback: usize) -> usize {
    span.map_or(fallback, |span| span.start)
}

/// The known word a mistyped one probably means: at most two edits away, or a third of its length.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let edits_max = (word.chars().count() / 3).max(2);
    let folded = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &candidate.to_lowercase().replace('-', "_")), candidate))
        .filter(|(edits, candidate)| *edits <= edits_max && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}
