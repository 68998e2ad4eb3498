//! Every command of Start and Operate is run, page by page, or says why it cannot be.
use super::fences::{Fence, NORUN, fences};
use super::{links_of_part, root, session};
use std::collections::BTreeSet;

/// The pages of Start and Operate, as the book lists them.
fn pages() -> Vec<String> {
    let parts = ["Start", "Operate"].map(links_of_part);
    let pages = parts.concat().into_iter();
    pages.map(|page| format!("docs/{page}")).collect()
}

fn of(page: &str) -> Vec<Fence> {
    fences(&root().join(page))
}

/// Runs a page, and looks for words in what it printed, so many times at least.
fn is_as_it_says(page: &str, printed: &[(&str, usize)]) {
    let page_fences = of(page);
    let names = |what: &str| page_fences.iter().any(|fence| fence.text.contains(what));
    if names("curl ") && robust_needs::program("curl").is_none() {
        return;
    }
    if names("torch-2.11.0-py") {
        // It says what to run where there is none.
        robust_tests::torch_python();
    }
    let said = session::run(page, &page_fences);
    for (words, times) in printed {
        let seen = said.matches(words).count();
        assert!(seen >= *times, "{page}: {words:?} {seen} times\n{said}");
    }
}

macro_rules! pages {
    ($($name:ident: $page:literal prints $printed:expr;)*) => {
        /// The pages that are run.
        const RUN: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            is_as_it_says($page, &$printed);
        })*
    };
}

pages! {
    the_page_of_the_installation: "docs/start/install.md" prints [("ok ", 1)];
    the_page_of_the_first_fault: "docs/start/first-fault.md" prints [("outcome     recovered", 2), ("drill kill-agent", 1)];
    the_page_of_your_own_trainer: "docs/your-own-trainer.md" prints [("restart the trainer gang", 2), ("outcome     recovered", 2)];
    the_page_of_your_own_loop: "docs/own-loop.md" prints [("outcome     recovered", 1)];
    the_page_of_your_own_environment: "docs/your-own-environment.md" prints [("outcome     recovered", 1)];
    the_page_of_the_console: "docs/operate/console.md" prints [];
    the_page_of_drills: "docs/operate/drills.md" prints [("outcome     recovered", 4), ("drill kill-agent", 1)];
    the_page_of_pausing: "docs/operate/pausing.md" prints [];
    the_page_of_slots: "docs/operate/slots.md" prints [];
    the_page_of_nodes: "docs/operate/nodes.md" prints [];
    the_page_of_other_machines: "docs/operate/remote.md" prints [];
    the_page_of_production: "docs/operate/production.md" prints [("drill kill-agent", 1)];
    the_page_of_checkpoints: "docs/operate/checkpoints.md" prints [("complete", 1)];
    the_page_of_backups: "docs/operate/backup.md" prints [];
    the_page_of_reports: "docs/operate/reports.md" prints [];
    the_page_of_the_router: "docs/operate/router.md" prints [];
}

#[test]
fn every_page_of_start_and_operate_that_has_commands_is_run() {
    let is_run = |fence: &Fence| fence.is_shell() && fence.mark("norun").is_none();
    let with_commands = pages()
        .into_iter()
        .filter(|page| of(page).iter().any(is_run));
    let with_commands: BTreeSet<String> = with_commands.collect();
    let run: BTreeSet<String> = RUN.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(with_commands, run);
}

#[test]
fn every_block_of_start_and_operate_says_what_it_is() {
    // A block without a language may have commands that nobody sees to be some.
    let mut wrong = Vec::new();
    for page in pages() {
        for fence in of(&page) {
            let known = |mark: &&String| {
                let key = mark.split_once('=').map(|(key, _)| key);
                ["norun", "exit", "file"].map(Some).contains(&key)
            };
            if fence.language.is_empty() || !fence.marks.iter().all(|mark| known(&mark)) {
                wrong.push(format!("{page}:{}", fence.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_run_says_why_and_every_reason_is_one_of_a_few() {
    let mut given = BTreeSet::new();
    for page in pages() {
        for fence in of(&page) {
            if let Some(reason) = fence.mark("norun") {
                println!("{page}:{}: not run: {reason}", fence.line);
                given.insert(reason.to_owned());
            }
        }
    }
    let reasons: BTreeSet<String> = NORUN.iter().map(|(word, _)| (*word).to_owned()).collect();
    assert_eq!(given, reasons);
}
