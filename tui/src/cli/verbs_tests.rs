//! The command line has every verb of the table, with the words that it takes.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::Args;
use clap::{Arg, Command, CommandFactory as _};
use robust_shared::verbs;

fn option<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    let mut arguments = command.get_arguments();
    arguments.find(|arg| arg.get_long() == Some(long))
}

/// What stands for the values of some arguments, in their order.
fn places<'a>(arguments: impl Iterator<Item = &'a Arg>) -> Vec<&'a str> {
    let names = arguments.flat_map(|arg| arg.get_value_names().unwrap_or_default());
    names.map(|name| name.as_str()).collect()
}

#[test]
fn every_verb_is_a_command_or_an_option_of_one_that_takes_what_the_table_says() {
    let root = Args::command();
    for verb in verbs::ALL {
        let name = verb.command;
        let (path, long) = match name.split_once(" --") {
            Some((path, long)) => (path, Some(long)),
            None => (name, None),
        };
        let command = path.split(' ').fold(&root, |command, part| {
            let found = command.find_subcommand(part);
            found.unwrap_or_else(|| panic!("there is no `robustctl {name}`"))
        });
        let takes: Vec<&str> = verb.takes.iter().map(|argument| argument.word).collect();
        if let Some(long) = long {
            let option = option(command, long).unwrap();
            assert_eq!(option.get_help().unwrap().to_string(), verb.about);
            assert_eq!(places(std::iter::once(option)), takes, "{name}");
            continue;
        }
        assert_eq!(command.get_about().unwrap().to_string(), verb.about);
        let (options, words): (Vec<&str>, Vec<&str>) = takes
            .iter()
            .copied()
            .partition(|word| word.starts_with("--"));
        assert_eq!(places(command.get_positionals()), words, "{name}");
        for word in options {
            let long = word.trim_start_matches("--");
            let is_group = command.get_groups().any(|of| of.get_id().as_str() == long);
            let is_there = is_group || option(command, long).is_some();
            assert!(is_there, "{name} has no {word}");
        }
        let asks_twice = option(command, "i-know").is_some();
        assert_eq!(asks_twice, verb.strikes, "{name}");
    }
}
