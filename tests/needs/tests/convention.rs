//! No test of the workspace says by itself that it does not run: such a word is lost in what tests print.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// Rust files below a folder, without what is built.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn who_does_not_run_says_so_through_this_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 500, "{}", files.len());
    let mut alone = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let said = line.to_lowercase();
            if ["print", "println"]
                .iter()
                .any(|by| said.contains(&format!("{by}!(\"skip")))
            {
                alone.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(alone.is_empty(), "use robust_needs::skip: {alone:#?}");
}
