use super::*;

#[test]
fn a_skip_is_one_line_in_a_file_of_its_own() {
    let folder = tempdir("line");
    write(
        &folder,
        ["skip", "a b", "no strace:\n\tnot found\n", "get it"],
    );
    write(&folder, ["elsewhere", "c", "d", "e"]);
    let mut lines: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    lines.sort();
    let skip = "skip\ta b\tno strace: not found\tget it\n";
    assert_eq!(lines, ["elsewhere\tc\td\te\n", skip]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[should_panic(expected = "a skip cannot be recorded")]
fn a_skip_that_cannot_be_recorded_is_a_failure() {
    write(Path::new("/nonexistent"), ["skip", "a", "b", "c"]);
}

#[test]
fn a_test_is_told_by_its_package_its_program_and_its_name() {
    let name = test_name();
    let own = "robust_needs tests::a_test_is_told_by_its_package_its_program_and_its_name";
    assert!(name.ends_with(own), "{name}");
    let arguments = |words: &'static str| words.split(' ').map(str::to_owned);
    let named = |words| named_by_arguments(arguments(words));
    assert_eq!(named("program --exact --nocapture a::b"), "a::b");
    assert_eq!(named("program a::b --exact --nocapture"), "a::b");
    assert_eq!(named("program a::b"), "");
}

#[test]
fn only_what_can_be_run_is_a_program() {
    assert!(is_program(&std::env::current_exe().unwrap()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(!is_program(source) && !is_program(&source.join("Cargo.toml")));
    assert!(program("sh").is_some());
}

fn tempdir(name: &str) -> PathBuf {
    let folder = format!("robust-needs.{}.{name}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}
