//! Every state of a machine is in the drawing of that machine.
//!
//! A drawing is a block of text in the docs of the file, a state a variant of the enum. Whoever adds one has
//! to say where it comes from and where it leads. The machines are listed here, as in the docs of the core.
use std::path::Path;

/// A machine: its states' enum, the file with it, and the one with the drawing.
struct Machine {
    states: &'static str,
    file: &'static str,
    drawn_in: &'static str,
}

const fn machine(states: &'static str, file: &'static str) -> Machine {
    Machine {
        states,
        file,
        drawn_in: file,
    }
}

const MACHINES: &[Machine] = &[
    machine("JobState", "state.rs"),
    Machine {
        drawn_in: "state.rs",
        ..machine("Outcome", "output.rs")
    },
    machine("Life", "roster/instance/mod.rs"),
    machine("NodeState", "roster/nodes/table.rs"),
    machine("Stage", "gang/mod.rs"),
    machine("Context", "gang/context.rs"),
    machine("Turn", "gang/context.rs"),
    machine("Place", "work/trajectories/table.rs"),
    machine("Supply", "weights/holder.rs"),
    machine("IncidentOutcome", "recover/incident.rs"),
];

/// What is said in drawings, all of them of one file.
fn drawings(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        match doc.map(str::trim) {
            None => inside = false,
            Some("```text") => {
                inside = true;
                found.push(String::new());
            }
            Some("```") => inside = false,
            Some(doc) => {
                if let Some(drawing) = found.last_mut().filter(|_| inside) {
                    drawing.push_str(doc);
                    drawing.push('\n');
                }
            }
        }
    }
    found
}

/// The variants of an enum, in words: `ToTraining` is "to training".
fn states(text: &str, name: &str) -> Vec<String> {
    let head = format!("enum {name} {{");
    let body = text.lines().skip_while(|line| !line.ends_with(&head));
    let body = body.skip(1).take_while(|line| *line != "}");
    let variants = body.filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    variants.map(in_words).collect()
}

fn in_words(line: &str) -> String {
    let name = line.split(|c: char| !c.is_ascii_alphanumeric()).next();
    let mut words = String::new();
    for c in name.unwrap_or_default().chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// Whether a drawing has these words, as words.
fn has(drawing: &str, words: &str) -> bool {
    let drawing = drawing.to_ascii_lowercase();
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    drawing.match_indices(words).any(|(at, _)| {
        let (before, after) = (&drawing[..at], &drawing[at + words.len()..]);
        is_end(before.chars().next_back()) && is_end(after.chars().next())
    })
}

/// The states that are in no drawing; all of them must be in the same one.
fn missing(states: &[String], drawings: &[String]) -> Vec<String> {
    let not_in = |drawing: &String| -> Vec<String> {
        let missing = states.iter().filter(|state| !has(drawing, state));
        missing.cloned().collect()
    };
    let nearest = drawings.iter().map(not_in).min_by_key(Vec::len);
    nearest.unwrap_or_else(|| states.to_vec())
}

#[test]
fn every_state_of_a_machine_is_in_its_drawing() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core");
    let read = |file: &str| std::fs::read_to_string(core.join(file)).unwrap();
    let mut wrong = Vec::new();
    for machine in MACHINES {
        let states = states(&read(machine.file), machine.states);
        assert!(states.len() > 1, "{} has no states", machine.states);
        for state in missing(&states, &drawings(&read(machine.drawn_in))) {
            wrong.push(format!("{}: {}: {state}", machine.drawn_in, machine.states));
        }
    }
    assert!(
        wrong.is_empty(),
        "in no drawing of its machine:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_state_that_is_only_told_of_or_in_another_drawing_is_missing() {
    let text = "/// Goes to *gone*.\n/// ```text\n/// here ──► away (again)\n/// ```\n\
                /// ```text\n/// far away\n/// ```\npub enum At {\n    /// It is.\n    Here,\n    Gone {\n\
                \x20       since: u8,\n    },\n    FarAway(u8),\n}\n";
    let states = states(text, "At");
    assert_eq!(states, ["here", "gone", "far away"]);
    assert_eq!(missing(&states, &drawings(text)), ["gone", "far away"]);
}
