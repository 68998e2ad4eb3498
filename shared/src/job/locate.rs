//! Where a key stands in the job file's text.
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The parsed text with the byte range of every key and value.
pub(crate) struct Document<'t> {
    root: DeTable<'t>,
    span: Range<usize>,
}

/// A step into a document: a table's entry or an array's element.
enum Child<'a, 't> {
    Entry(&'a str, Range<usize>, &'a DeValue<'t>, Range<usize>),
    Element(usize, &'a DeValue<'t>, Range<usize>),
}

impl<'t> Document<'t> {
    /// None when the text is no TOML.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        let root = DeTable::parse(text).ok()?;
        Some(Self {
            span: root.span(),
            root: root.into_inner(),
        })
    }

    /// The range of the whole file.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The offset of a dotted key (`node.0.pools.train`), or of the longest leading part of it that
    /// stands in the text.
    pub(crate) fn locate(&self, dotted: &str) -> Option<usize> {
        let mut children = table_children(&self.root);
        let mut found = None;
        for part in dotted.split('.') {
            let Some(child) = children.into_iter().find(|c| c.name() == part) else {
                break;
            };
            found = Some(child.start());
            children = value_children(child.value());
        }
        found
    }

    /// The dotted key whose name or value covers the offset, as deep as possible.
    pub(super) fn key_at(&self, offset: usize) -> String {
        let mut path: Vec<String> = Vec::new();
        let mut children = table_children(&self.root);
        while let Some(child) = children.into_iter().find(|c| c.covers(offset)) {
            path.push(child.name());
            children = value_children(child.value());
        }
        path.join(".")
    }
}

impl<'a, 't> Child<'a, 't> {
    fn name(&self) -> String {
        match self {
            Child::Entry(name, ..) => (*name).to_owned(),
            Child::Element(index, ..) => index.to_string(),
        }
    }

    fn value(&self) -> &'a DeValue<'t> {
        match self {
            Child::Entry(_, _, value, _) | Child::Element(_, value, _) => value,
        }
    }

    fn start(&self) -> usize {
        match self {
            Child::Entry(_, key, ..) => key.start,
            Child::Element(_, _, range) => range.start,
        }
    }

    /// Tables of `[a.b]` headers have no range that holds their entries: look inside as well.
    fn covers(&self, offset: usize) -> bool {
        let own = match self {
            Child::Entry(_, key, _, range) => key.contains(&offset) || range.contains(&offset),
            Child::Element(_, _, range) => range.contains(&offset),
        };
        own || value_children(self.value())
            .iter()
            .any(|child| child.covers(offset))
    }
}

fn table_children<'a, 't>(table: &'a DeTable<'t>) -> Vec<Child<'a, 't>> {
    let entry = |(key, value): (&'a toml::Spanned<toml::de::DeString<'t>>, _)| {
        let value: &'a toml::Spanned<DeValue<'t>> = value;
        Child::Entry(key.get_ref(), key.span(), value.get_ref(), value.span())
    };
    table.iter().map(entry).collect()
}

fn value_children<'a, 't>(value: &'a DeValue<'t>) -> Vec<Child<'a, 't>> {
    match value {
        DeValue::Table(table) => table_children(table),
        DeValue::Array(array) => {
            let element = |(i, v): (usize, &'a toml::Spanned<DeValue<'t>>)| {
                Child::Element(i, v.get_ref(), v.span())
            };
            array.iter().enumerate().map(element).collect()
        }
        _ => Vec::new(),
    }
}

/// Line and column of a byte offset, from 1; columns count characters.
pub(super) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}
