//! A crate as the compiler reads it, from its root along `mod name;`, without what is under
//! `#[cfg(test)]`. Its rooms are the modules at its top, or those of a module that is named.
use super::tokens::{self, Token};
use std::path::{Path, PathBuf};
use std::slice::from_ref;

/// A crate.
#[derive(Debug, Default)]
pub struct Tree {
    pub files: Vec<PathBuf>,
    /// The modules at its top, or of the module that was named.
    pub rooms: Vec<String>,
    /// The module whose rooms they are; none: they are the crate's own.
    pub top: Option<String>,
    /// What its top shows under a name of its own, and the room that comes from.
    pub shown: Vec<(String, String)>,
    /// Every path that begins in a module below the top and says where it goes.
    pub paths: Vec<Reference>,
}

/// A path in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub room: String,
    pub file: PathBuf,
    pub line: usize,
    /// The first name below the crate's top, or below the module that was named.
    pub to: String,
}

/// Reads it, with the rooms of the module that is `within` it; `read` gives a file's text, if there is one.
pub fn read(
    root: &Path,
    within: &[&str],
    read: &dyn Fn(&Path) -> Option<String>,
) -> Result<Tree, String> {
    let within: Vec<String> = within.iter().map(|name| (*name).to_owned()).collect();
    let mut tree = Tree {
        top: within.last().cloned(),
        ..Tree::default()
    };
    let mut reader = Reader {
        read,
        within: &within,
        tree: &mut tree,
    };
    let folder = root.parent().unwrap_or(root);
    reader.file(root, folder, &[])?;
    Ok(tree)
}

struct Reader<'a> {
    read: &'a dyn Fn(&Path) -> Option<String>,
    /// The module whose rooms are looked at, from the crate's top on.
    within: &'a [String],
    tree: &'a mut Tree,
}

impl Reader<'_> {
    /// Reads a file; its modules without a body lie in this folder.
    fn file(&mut self, path: &Path, folder: &Path, module: &[String]) -> Result<(), String> {
        let text = (self.read)(path).ok_or_else(|| format!("no file {}", path.display()))?;
        self.tree.files.push(path.to_owned());
        let tokens = without_tests(&tokens::read(&text));
        self.module(&tokens, path, folder, module)
    }

    /// Reads what stands in a module.
    fn module(
        &mut self,
        tokens: &[Token],
        path: &Path,
        folder: &Path,
        module: &[String],
    ) -> Result<(), String> {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let next = |n: usize| tokens.get(at + n);
            let name = next(1).filter(|name| name.is_word());
            match (token.text.as_str(), name, next(2)) {
                ("mod", Some(name), Some(sign)) if sign.is(";") => {
                    self.declare(module, name, path);
                    let inner = [module, from_ref(&name.text)].concat();
                    let other = path_attribute(&tokens[..at]);
                    self.found(other, &name.text, path, folder, &inner)?;
                    at += 3;
                }
                ("mod", Some(name), Some(sign)) if sign.is("{") => {
                    self.declare(module, name, path);
                    let inner = [module, from_ref(&name.text)].concat();
                    let end = closing(tokens, at + 2);
                    let body = &tokens[at + 3..end];
                    self.module(body, path, &folder.join(&name.text), &inner)?;
                    at = end + 1;
                }
                ("use", ..) if module == self.within => {
                    let end = tokens[at..].iter().position(|t| t.is(";"));
                    let end = end.map_or(tokens.len(), |n| at + n);
                    self.show(&tokens[at + 1..end]);
                    at = end;
                }
                ("crate" | "super", ..) if self.room(module).is_some() => {
                    at = self.path(tokens, at, path, module);
                }
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// The room that a module is in, or is.
    fn room<'m>(&self, module: &'m [String]) -> Option<&'m String> {
        module.strip_prefix(self.within)?.first()
    }

    /// Takes up a module, if it is a room; the module whose room it is names it.
    fn declare(&mut self, module: &[String], name: &Token, file: &Path) {
        if module != self.within {
            return;
        }
        self.tree.rooms.push(name.text.clone());
        if let Some(top) = &self.tree.top {
            self.tree.paths.push(Reference {
                room: top.clone(),
                file: file.to_owned(),
                line: name.line,
                to: name.text.clone(),
            });
        }
    }

    /// Reads the file of a module.
    fn found(
        &mut self,
        other: Option<String>,
        name: &str,
        path: &Path,
        folder: &Path,
        module: &[String],
    ) -> Result<(), String> {
        if let Some(other) = other {
            let file = path.parent().unwrap_or(path).join(other);
            let folder = file.parent().unwrap_or(&file).to_owned();
            return self.file(&file, &folder, module);
        }
        let (file, inner) = (folder.join(format!("{name}.rs")), folder.join(name));
        match (self.read)(&file).is_some() {
            true => self.file(&file, &inner, module),
            false => self.file(&inner.join("mod.rs"), &inner, module),
        }
    }

    /// The names that `use` brings to the top, with the room each is from.
    fn show(&mut self, tokens: &[Token]) {
        for (path, name) in leaves(tokens) {
            // From elsewhere in the crate: of none of these rooms.
            let is_elsewhere = path.first().is_some_and(|first| *first != "self");
            if !self.within.is_empty() && is_elsewhere && !self.tree.rooms.contains(&path[0]) {
                continue;
            }
            let own = path
                .iter()
                .find(|part| !["crate", "self"].contains(&part.as_str()));
            if let Some(room) = own.filter(|_| path.len() > 1) {
                self.tree.shown.push((name, room.clone()));
            }
        }
    }

    /// Takes up a path that begins with `crate` or `super`; where what follows it begins.
    fn path(&mut self, tokens: &[Token], at: usize, file: &Path, module: &[String]) -> usize {
        let mut depth = if tokens[at].is("crate") {
            0
        } else {
            module.len() - 1
        };
        let mut at = at + 1;
        while is_at(tokens, at, "::") && is_at(tokens, at + 1, "super") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
        }
        // `pub(crate)`, or a path that ends within the room.
        let (Some(room), Some(way)) = (self.room(module), self.within.get(depth..)) else {
            return at;
        };
        if !is_at(tokens, at, "::") {
            return at;
        }
        for first in below(tokens, at, way) {
            self.tree.paths.push(Reference {
                room: room.clone(),
                file: file.to_owned(),
                line: first.line,
                to: first.text.clone(),
            });
        }
        at + 1
    }
}

fn is_at(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|t| t.is(text))
}

/// The names that follow the `::` here after the modules of this way, each of them once for each path of a group. A path that
/// leads elsewhere has none.
fn below<'t>(tokens: &'t [Token], at: usize, way: &[String]) -> Vec<&'t Token> {
    let begins = match is_at(tokens, at + 1, "{") {
        true => firsts(tokens, at + 1),
        false => vec![at + 1],
    };
    let names = |begins: usize| -> Vec<&'t Token> {
        match way.split_first() {
            None => tokens.get(begins).into_iter().collect(),
            Some((next, rest))
                if is_at(tokens, begins, next) && is_at(tokens, begins + 1, "::") =>
            {
                below(tokens, begins + 1, rest)
            }
            Some(_) => Vec::new(),
        }
    };
    begins.into_iter().flat_map(names).collect()
}

/// Where each path begins in the group that is opened here.
fn firsts(tokens: &[Token], open: usize) -> Vec<usize> {
    let (mut depth, mut begins, mut firsts) = (0, true, Vec::new());
    for (at, token) in tokens
        .iter()
        .enumerate()
        .take(closing(tokens, open))
        .skip(open + 1)
    {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => begins = true,
            _ if depth == 0 && begins => {
                firsts.push(at);
                begins = false;
            }
            _ => {}
        }
    }
    firsts
}

/// The whole paths of a `use`, each with the name it brings.
fn leaves(tokens: &[Token]) -> Vec<(Vec<String>, String)> {
    let (mut before, mut leaves): (Vec<Vec<String>>, _) = (vec![Vec::new()], Vec::new());
    let (mut path, mut renamed) = (Vec::new(), None);
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match token.text.as_str() {
            "{" => before.push(std::mem::take(&mut path)),
            "," | "}" => {
                end_leaf(&before, &mut path, &mut renamed, &mut leaves);
                if token.is("}") {
                    before.pop();
                }
            }
            "as" => renamed = tokens.next().map(|name| name.text.clone()),
            _ if token.is_word() || token.is("*") => path.push(token.text.clone()),
            _ => {}
        }
    }
    end_leaf(&before, &mut path, &mut renamed, &mut leaves);
    leaves
}

fn end_leaf(
    before: &[Vec<String>],
    path: &mut Vec<String>,
    renamed: &mut Option<String>,
    leaves: &mut Vec<(Vec<String>, String)>,
) {
    let Some(last) = path.last().cloned() else {
        return;
    };
    let whole = [before.concat(), std::mem::take(path)].concat();
    leaves.push((whole, renamed.take().unwrap_or(last)));
}

/// The file that `#[path = ".."]` before this names.
fn path_attribute(before: &[Token]) -> Option<String> {
    let end = before.iter().rposition(|t| t.is("]"))?;
    let (before, between) = before.split_at(end + 1);
    let visibility = ["pub", "(", "crate", "super", ")"];
    if !between
        .iter()
        .all(|t| visibility.contains(&t.text.as_str()))
    {
        return None;
    }
    match before {
        [.., path, is, name, end] if path.is("path") && is.is("=") && end.is("]") => {
            Some(name.text.trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// Where the bracket that opens here is closed.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// What says of code that no program has it.
const NOT_BUILT: [&str; 2] = ["test", "fuzzing"];
/// The words with which an item begins that may stand under `#[cfg(test)]`.
const ITEMS: [&str; 12] = [
    "pub", "mod", "use", "fn", "impl", "struct", "enum", "const", "static", "type", "trait",
    "async",
];

/// The file without the items under `#[cfg(test)]` and `#[cfg(fuzzing)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let is_not_built = |word: &&str| {
            let attribute = ["#", "[", "cfg", "(", word, ")", "]"];
            let found = tokens.get(at..at + attribute.len());
            found.is_some_and(|a| a.iter().zip(attribute).all(|(t, text)| t.is(text)))
        };
        match NOT_BUILT.iter().any(is_not_built) {
            true => at = after_item(tokens, at + 7),
            false => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// Where the item that begins here has ended; here, if none does.
fn after_item(tokens: &[Token], begins: usize) -> usize {
    let mut at = begins;
    while is_at(tokens, at, "#") && is_at(tokens, at + 1, "[") {
        at = closing(tokens, at + 1) + 1;
    }
    if !tokens
        .get(at)
        .is_some_and(|t| ITEMS.contains(&t.text.as_str()))
    {
        return begins;
    }
    let begins_with = |words: &[&str]| {
        let mut first = tokens[at..].iter().take(4);
        first.any(|t| words.contains(&t.text.as_str()))
    };
    // The braces of these do not end them.
    let to_sign = begins_with(&["use", "const", "static", "type"]) && !begins_with(&["fn"]);
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "{" | "(" | "[" => {
                let (brace, end) = (token.is("{"), closing(tokens, at) + 1);
                if brace && !to_sign {
                    return end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    at
}
