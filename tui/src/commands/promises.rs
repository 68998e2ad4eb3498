//! How roles are hosted and what is promised for it: two lines in `status` and `report` where a role is
//! not the built-in one, all of it with `status --promises`.
use crate::format::cut;
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::printable::one_line as printable;
use robust_shared::promises::Level;
use robust_shared::wire::HostingKind;

/// How a role is hosted that is not the user's.
/// Columns of a line.
const LINE: usize = 80;
/// Columns that a promise's number takes.
const NUMBER: usize = 5;

/// Two lines, their heads as wide as those of the text they stand in; nothing where every role is the
/// built-in one.
pub fn summary(hosted: &[v1::HostedRole], promises: &[v1::Promise], head: usize) -> String {
    if is_built_in(hosted) {
        return String::new();
    }
    let line = |name: &str, text: &str| cut(&format!("{name:<head$} {text}"), LINE) + "\n";
    line("hosting", &hosting(hosted)) + &line("promises", &short(promises))
}

/// Roles that are not built in, those of one kind together.
fn hosting(hosted: &[v1::HostedRole]) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for of in hosted
        .iter()
        .filter(|h| h.hosting() != Some(HostingKind::BuiltIn))
    {
        let kind = match of.hosting() {
            Some(HostingKind::Engine) => format!("{} engines, weights {}", of.kind, of.weights),
            Some(HostingKind::Environment) => "an environment of yours".to_owned(),
            _ => format!("a {} of yours", of.hosting),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, roles)) => roles.push(&of.role),
            None => kinds.push((kind, vec![&of.role])),
        }
    }
    let each = kinds.into_iter();
    let each = each.map(|(kind, roles)| format!("{}: {kind}", roles.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

/// What is not promised as with built-in roles.
fn short(promises: &[v1::Promise]) -> String {
    let of = |level: Level| {
        let of = promises.iter().filter(|p| p.level() == Some(level));
        of.map(|p| p.id.as_str()).collect::<Vec<_>>().join(", ")
    };
    let parts = [("not", of(Level::No)), ("in part", of(Level::Partly))];
    let parts = parts.iter().filter(|(_, ids)| !ids.is_empty());
    let parts: Vec<String> = parts.map(|(how, ids)| format!("{how} {ids}")).collect();
    match parts.is_empty() {
        true => "all".to_owned(),
        false => format!("{}; `robustctl status --promises`", parts.join("; ")),
    }
}

/// All of it: a line for each role and for each promise, what a promise falls short by below it.
pub fn whole(hosted: &[v1::HostedRole], promises: &[v1::Promise], paint: Paint) -> String {
    let mut table = Table::new(&["ROLE", "HOSTED AS"]);
    for of in hosted {
        table.row([printable(&of.role), printable(&of.text)]);
    }
    let mut text = format!("{}\n", table.render(paint));
    let level = "LEVEL";
    let wide = promises.iter().map(|p| p.text.chars().count()).max();
    let wide = wide.unwrap_or(0);
    let head = format!("{:NUMBER$}{:<wide$}  {level}", "", "PROMISE");
    text += &format!("{}\n", paint.bold(&head));
    for of in promises {
        let (id, what, level) = (printable(&of.id), printable(&of.text), printable(&of.level));
        text += &format!("{id:<NUMBER$}{what:<wide$}  {level}\n");
        for reason in &of.reasons {
            text += &format!("{:NUMBER$}{}\n", "", printable(reason));
        }
    }
    text
}

/// Whether every role is the built-in one.
pub fn is_built_in(hosted: &[v1::HostedRole]) -> bool {
    hosted
        .iter()
        .all(|of| of.hosting() == Some(HostingKind::BuiltIn))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::job::Job;
    use robust_shared::promises::Promises;

    fn of(more: &str) -> (Vec<v1::HostedRole>, Vec<v1::Promise>) {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        let job = Job::parse(&text, std::path::Path::new("job.toml")).unwrap();
        let of = Promises::of(&job);
        let promises = of.promises.iter().map(v1::Promise::from).collect();
        (
            of.hosted.iter().map(v1::HostedRole::from).collect(),
            promises,
        )
    }

    const ENGINES: &str = "[rollout.command]\nkind='vllm'\nargv=['x','{port}']\n\
                           [service.judge]\nargv=['j']\n[service.reward]\nargv=['r']\n";

    #[test]
    fn a_built_in_job_is_told_nothing_that_it_did_not_ask_for() {
        let (hosted, promises) = of("");
        assert_eq!(summary(&hosted, &promises, 8), "");
        let text = whole(&hosted, &promises, Paint::plain());
        assert!(
            text.contains("I-4  versions never go back, are verified"),
            "{text}"
        );
    }

    #[test]
    fn two_lines_say_who_is_hosted_and_what_that_costs() {
        let (hosted, promises) = of(ENGINES);
        insta::assert_snapshot!(summary(&hosted, &promises, 8), @r"
        hosting  rollout: vllm engines, weights disk; judge, reward: a service of yours
        promises not I-9; in part I-4, I-7, I-8; `robustctl status --promises`
        ");
    }

    #[test]
    fn every_promise_is_told_with_its_reasons_in_eighty_columns() {
        let (hosted, promises) = of(ENGINES);
        let text = whole(&hosted, &promises, Paint::plain());
        assert!(text.lines().all(|l| l.chars().count() <= LINE), "{text}");
        insta::assert_snapshot!(text);
    }
}
