//! Rooms do not import each other in a circle.
//!
//! A room is a module at the top of a crate, `core` or `sim`, with all that lies in its folder. Where two
//! rooms need each other, neither can be understood, tested or moved alone. Every member of the
//! workspace is read (`tree`, `tokens`), every path from a room into another is an edge (`graph`), and
//! an edge that lies on a circle must be on the list below, with its reason. One that lies on none any
//! more must leave the list, so the list only gets shorter. `--no-capture` prints every line that makes a
//! known circle. Some rooms import each other neither way, circle or not: those are listed too.
//!
//! A module of many rooms can be held to the same: there the module itself counts as one of them, so that what its rooms share
//! lies below it.
//!
//! Tests may look into any room: code under `#[cfg(test)]` or `#[cfg(fuzzing)]` does not count. Nor does the top of the crate
//! itself, which is there to put the rooms together.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "it reads the sources and prints what it found"
)]
mod drawings;
mod graph;
mod tokens;
mod tree;

use graph::{Edge, Graph};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A circle that is known: the crate, who imports whom on it, and why it is still there.
struct Known {
    member: &'static str,
    /// `a -> b c`: room `a` imports `b` and `c`.
    imports: &'static [&'static str],
    reason: &'static str,
}

impl Known {
    fn edges(&self) -> impl Iterator<Item = Edge> {
        self.imports.iter().flat_map(|line| {
            let (from, to) = line.split_once(" -> ").unwrap();
            to.split(' ').map(|to| (from.to_owned(), to.to_owned()))
        })
    }
}

/// What must get shorter.
const KNOWN: &[Known] = &[Known {
    member: "shared",
    imports: &["core -> job", "job -> core"],
    reason: "the core is set up from a job file, and a job file is checked by the core's own table of \
                 rules and kinds of faults",
}];

/// Rooms that import each other neither way: the crate, one, the other. What both need lies in a room
/// below them, and the crate's top gives each its work.
const APART: &[(&str, &str, &str)] = &[("tui", "commands", "console")];

/// Modules whose own rooms import each other in no circle, and none of them the module that has them all: the crate, the way to
/// the module.
const WITHIN: &[(&str, &[&str])] = &[
    ("tui", &["commands"]),
    ("tui", &["commands", "doctor"]),
    ("tui", &["commands", "report"]),
    ("tui", &["console", "screens"]),
];

/// Members that are built without another one, however far below it would be: what is only simulated is in no program that
/// runs jobs.
const WITHOUT: &[(&str, &str)] = &[
    ("daemon", "robust-sim"),
    ("daemon/worker", "robust-sim"),
    ("daemon/shim", "robust-sim"),
    ("daemon/role", "robust-sim"),
    ("daemon/weights", "robust-sim"),
    ("shared", "robust-ahead"),
];

/// Features of the workspace's own crates with which tests look into them, or break them on purpose. Cargo builds a crate once for
/// all programs that it builds together, with the features of each: where one of them has these, so has robustd.
const FOR_TESTS: &[&str] = &["inspect", "mutations"];

/// The workspace's members, as its `Cargo.toml` lists them.
fn members(workspace: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let names = members.iter().map(|m| m.as_str().unwrap().to_owned());
    names.collect()
}

fn manifest(workspace: &Path, member: &str) -> toml::Table {
    let path = workspace.join(member).join("Cargo.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// What a member is built with, tests aside, by its manifest: for any target, and for some only.
fn dependencies(of: &toml::Table) -> Vec<&toml::Table> {
    let targets = of.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([of]);
    let mut found = Vec::new();
    for table in tables {
        let kinds = ["dependencies", "build-dependencies"];
        let named = kinds.iter().filter_map(|kind| table.get(*kind)?.as_table());
        found.extend(named);
    }
    found
}

/// The features for tests that such a table asks for.
fn for_tests(uses: &toml::Table) -> Vec<String> {
    let mut found = Vec::new();
    for (name, how) in uses.iter().filter(|(name, _)| name.starts_with("robust")) {
        let features = how.get("features").and_then(toml::Value::as_array);
        let features = features.into_iter().flatten();
        let features = features.filter_map(toml::Value::as_str);
        let features = features.filter(|feature| FOR_TESTS.contains(feature));
        found.extend(features.map(|feature| format!("{name}/{feature}")));
    }
    found
}

/// The packages that a member is built with, tests aside: those of the workspace, and what they name themselves.
fn built_with(workspace: &Path, member: &str) -> BTreeSet<String> {
    let manifests: Vec<toml::Table> = members(workspace)
        .iter()
        .map(|member| manifest(workspace, member))
        .collect();
    let name = |m: &toml::Table| m["package"]["name"].as_str().unwrap().to_owned();
    let mut open = vec![name(&manifest(workspace, member))];
    let mut found = BTreeSet::new();
    while let Some(package) = open.pop() {
        let own = manifests.iter().find(|m| name(m) == package);
        let uses = own.into_iter().flat_map(dependencies);
        for used in uses.flat_map(toml::Table::keys) {
            if found.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    found
}

/// The files at which the compiler begins to read a member.
fn roots(folder: &Path) -> Vec<PathBuf> {
    let src = folder.join("src");
    let mut roots: Vec<PathBuf> = ["lib.rs", "main.rs"].map(|name| src.join(name)).into();
    let bins = std::fs::read_dir(src.join("bin")).into_iter().flatten();
    roots.extend(bins.map(|entry| entry.unwrap().path()));
    roots.retain(|path| path.is_file());
    roots
}

fn graph(workspace: &Path, member: &str, within: &[&str]) -> (Graph, usize) {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let (mut graph, mut files) = (Graph::default(), 0);
    for root in roots(&workspace.join(member)) {
        let tree = tree::read(&root, within, &read).unwrap();
        files += tree.files.len();
        graph.add(&tree, workspace);
    }
    (graph, files)
}

#[test]
fn no_rooms_import_each_other_in_a_circle_that_is_not_known() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = workspace.canonicalize().unwrap();
    let (mut wrong, mut read) = (Vec::new(), 0);
    for member in members(&workspace) {
        let (graph, files) = graph(&workspace, &member, &[]);
        read += files;
        let (mut found, mut listed) = (graph.circular(), BTreeSet::new());
        for known in KNOWN.iter().filter(|known| known.member == member) {
            assert!(!known.reason.is_empty(), "{member}: why is it there?");
            println!("{member}, known: {}", known.reason);
            for edge in known.edges() {
                println!("{}", graph.explain(&edge));
                listed.insert(edge);
            }
        }
        for (from, to) in listed.iter().filter(|edge| !found.contains(edge)) {
            let gone = "is on no circle any more: take it off the list";
            wrong.push(format!("{member}: `{from} -> {to}` {gone}"));
        }
        found.retain(|edge| !listed.contains(edge));
        let new = found.iter().map(|edge| graph.explain(edge));
        wrong.extend(new.map(|circle| format!("{member}: a circle that is not known: {circle}")));
    }
    assert!(read > 600, "only {read} files were found");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn rooms_that_are_to_be_apart_import_each_other_neither_way() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = workspace.canonicalize().unwrap();
    for (member, one, other) in APART {
        let (graph, _) = graph(&workspace, member, &[]);
        for (from, to) in [(one, other), (other, one)] {
            let uses = graph.imports(from);
            assert!(!uses.is_empty(), "{member}: is there a room `{from}`?");
            let edge = ((*from).to_owned(), (*to).to_owned());
            assert!(!uses.contains(to), "{member}: {}", graph.lines(&edge));
        }
    }
}

#[test]
fn the_rooms_of_a_module_import_neither_each_other_in_a_circle_nor_the_module() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = workspace.canonicalize().unwrap();
    let mut wrong = Vec::new();
    for (member, within) in WITHIN {
        let (graph, _) = graph(&workspace, member, within);
        let module = within.join("::");
        let rooms = within.last().map_or(0, |top| graph.imports(top).len());
        assert!(rooms > 2, "{member}: {module} has {rooms} rooms");
        let found = graph.circular();
        let circles = found.iter().map(|edge| graph.explain(edge));
        wrong.extend(circles.map(|circle| format!("{member}: in {module}: {circle}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_simulator_is_in_no_program_that_runs_jobs() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = workspace.canonicalize().unwrap();
    assert!(built_with(&workspace, "tui").contains("robust-ahead"));
    for (member, package) in WITHOUT {
        let found = built_with(&workspace, member);
        assert!(
            !found.contains(*package),
            "{member} is built with {package}"
        );
    }
}

#[test]
fn no_program_is_built_with_features_for_tests() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = workspace.canonicalize().unwrap();
    let root = manifest(&workspace, ".");
    let shared = root["workspace"]["dependencies"].as_table().unwrap();
    let mut wrong = for_tests(shared);
    for member in members(&workspace) {
        let own = manifest(&workspace, &member);
        let tables = dependencies(&own).into_iter();
        let found = tables.flat_map(for_tests);
        wrong.extend(found.map(|feature| format!("{member}: {feature}")));
        let features = own.get("features");
        let by_default = features.and_then(|all| all.get("default")?.as_array());
        let mut by_default = by_default.into_iter().flatten();
        let is_for_tests = |feature: &str| FOR_TESTS.iter().any(|one| feature.ends_with(*one));
        if by_default.any(|feature| feature.as_str().is_some_and(is_for_tests)) {
            wrong.push(format!("{member}: by default"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn features_for_tests_are_found_in_every_table_but_that_of_tests() {
        let own: toml::Table = "[dependencies]\nrobust-a = { workspace = true, features = [\"inspect\"] }\nlibc = \"0.2\"\n\
                                other = { version = \"1\", features = [\"inspect\"] }\n\
                                [target.'cfg(unix)'.dependencies]\nrobust-b = { path = \"b\", features = [\"x\", \"mutations\"] }\n\
                                [dev-dependencies]\nrobust-c = { workspace = true, features = [\"inspect\"] }\n"
            .parse()
            .unwrap();
        let tables = dependencies(&own).into_iter();
        let mut found: Vec<String> = tables.flat_map(for_tests).collect();
        found.sort();
        assert_eq!(found, ["robust-a/inspect", "robust-b/mutations"]);
    }

    /// The edges on circles of a crate of these files below `src`, and what is said of the first.
    fn circles(files: &[(&str, &str)]) -> (Vec<String>, String) {
        circles_within(&[], files)
    }

    /// The same of a module of it.
    fn circles_within(within: &[&str], files: &[(&str, &str)]) -> (Vec<String>, String) {
        let at = |name: &str| Path::new("/w/src").join(name);
        let files: BTreeMap<PathBuf, String> = files
            .iter()
            .map(|(name, text)| (at(name), (*text).to_owned()))
            .collect();
        let tree = tree::read(&at("lib.rs"), within, &|path| files.get(path).cloned()).unwrap();
        let mut graph = Graph::default();
        graph.add(&tree, Path::new("/w"));
        let circular = graph.circular();
        let said = circular.first().map(|edge| graph.explain(edge));
        let edges = circular.iter().map(|(from, to)| format!("{from} -> {to}"));
        (edges.collect(), said.unwrap_or_default())
    }

    const TOP: (&str, &str) = (
        "lib.rs",
        "pub mod a;\nmod b;\nmod c;\nuse a::X;\nuse b::Y;\n",
    );

    #[test]
    fn a_circle_of_three_is_found_with_the_lines_that_make_it() {
        let (circles, said) = circles(&[
            TOP,
            ("a/mod.rs", "mod inner;\npub struct X;\n"),
            ("a/inner.rs", "use std::fmt;\nuse super::super::b::Y;\n"),
            ("b.rs", "pub struct Y;\nfn f() { crate::c::g() }\n"),
            (
                "c/mod.rs",
                "use crate::{\n    d::Z,\n    a::{self, X},\n};\npub fn g() {}\n",
            ),
        ]);
        assert_eq!(circles, ["a -> b", "b -> c", "c -> a"]);
        let expected = "a -> b -> c -> a\n  a -> b\n    src/a/inner.rs:2\n  b -> c\n    src/b.rs:2\n  \
                        c -> a\n    src/c/mod.rs:3\n";
        assert_eq!(said, expected);
    }

    #[test]
    fn what_the_top_of_the_crate_shows_under_its_own_name_is_of_the_room_it_comes_from() {
        let a = ("a/mod.rs", "use crate::Y;\npub struct X;\n");
        let b = ("b.rs", "pub struct Y(crate::Named);\n");
        let top = (
            "lib.rs",
            "mod a;\nmod b;\npub use a::X as Named;\npub use b::{Y};\n",
        );
        assert_eq!(circles(&[top, a, b]).0, ["a -> b", "b -> a"]);
    }

    #[test]
    fn an_import_of_one_room_by_another_is_named_with_its_line() {
        let tree = tree::read(Path::new("/w/src/lib.rs"), &[], &|path| {
            let text = match path.file_name()?.to_str()? {
                "lib.rs" => "mod a;\nmod b;\n",
                "a.rs" => "use crate::b::Y;\n",
                "b.rs" => "pub struct Y;\n",
                _ => return None,
            };
            Some(text.to_owned())
        });
        let mut graph = Graph::default();
        graph.add(&tree.unwrap(), Path::new("/w"));
        assert_eq!(
            (graph.imports("a"), graph.imports("b")),
            (vec!["b"], vec![])
        );
        let said = graph.lines(&("a".to_owned(), "b".to_owned()));
        assert_eq!(said, "  a -> b\n    src/a.rs:1\n");
    }

    #[test]
    fn a_room_of_a_module_that_imports_it_or_its_neighbour_makes_a_circle_within() {
        let top = ("lib.rs", "mod a;\nmod one;\n");
        let module =
            "mod one;\nmod two;\npub use two::Z;\nuse crate::one::Y;\npub fn f() { one::g() }\n";
        let within = |one: &str, two: &str| {
            let one = ("a/one.rs", one);
            let two = ("a/two/mod.rs", two);
            let files = [
                top,
                ("one.rs", "pub struct Y;\n"),
                ("a/mod.rs", module),
                one,
                two,
            ];
            circles_within(&["a"], &files).0
        };
        let none: Vec<String> = Vec::new();
        // `one` at the top of the crate is another room.
        assert_eq!(
            within("pub fn g() {}", "use crate::one::Y;\npub struct Z(Y);"),
            none
        );
        assert_eq!(
            within("use super::two::Z;\npub fn g() {}", "pub struct Z;"),
            none
        );
        let of_the_module = within("use super::f;\npub fn g() {}", "pub struct Z;");
        assert_eq!(of_the_module, ["a -> one", "one -> a"]);
        let both = within(
            "use crate::{a::{self, Z}, one::Y};\npub fn g() {}",
            "mod inner { use super::super::one::g; }",
        );
        assert_eq!(
            both,
            [
                "a -> one",
                "a -> two",
                "one -> a",
                "one -> two",
                "two -> one"
            ]
        );
    }

    #[test]
    fn words_and_tests_import_nothing() {
        let a = "//! crate::b\n/* crate::b /* super::b */ */\npub struct X(&'static str, char);\n\
                 const S: &str = \"crate::b \\\" crate::b\";\nconst R: &str = r#\"\" crate::b\"#;\n\
                 const Q: char = '\"'; fn f<'a>(x: &'a str) { a::crate_b(x) }\n\
                 #[cfg(test)]\nuse crate::b::{Y, Z};\n#[cfg(test)]\nmod tests { use crate::b::Y; }\n\
                 #[cfg(fuzzing)]\nmod apart;\n";
        let files = [
            TOP,
            ("a/mod.rs", a),
            ("a/apart.rs", "use crate::b::Y;\n"),
            ("b.rs", "use super::a::X;\n"),
            ("c/mod.rs", ""),
        ];
        assert_eq!(circles(&files).0, Vec::<String>::new());
        let ends = a.replace("#[cfg(test)]\nuse", "use");
        let mut files = files;
        files[1].1 = &ends;
        let counted = "without the attribute it counts";
        assert_eq!(circles(&files).0, ["a -> b", "b -> a"], "{counted}");
    }
}
