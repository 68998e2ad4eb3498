//! `robustctl status --contexts`: the jobs of several daemons, a line each.
use crate::cli::Global;
use crate::contexts::{Contexts, Named};
use crate::endpoint::ANSWER_WITHIN;
use crate::error::CliError;
use crate::format::{clock, of_total, ratio};
use crate::glance::{Away, Glance, Row, worst_first};
use crate::output::{put, put_json};
use crate::pace::Pace;
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;

/// Prints the jobs of these contexts; of all where none is named.
pub async fn status(names: &str, global: &Global) -> Result<(), CliError> {
    global.names_no_daemon()?;
    let contexts = Contexts::named(names)?;
    // Each for itself: one that hangs keeps nobody waiting longer than for its own limit.
    let looks: Vec<_> = contexts
        .all
        .iter()
        .cloned()
        .map(|n| tokio::spawn(look(n)))
        .collect();
    let mut rows = Vec::new();
    for look in looks {
        let ended = |e| CliError::Failed(format!("a context cannot be looked at: {e}"));
        rows.push(look.await.map_err(ended)?);
    }
    worst_first(&mut rows);
    match (global.json, rows.is_empty()) {
        (true, _) => put_json(&rows),
        (false, true) => put(&format!(
            "no context is written down in {}\n",
            contexts.file.display()
        )),
        (false, false) => put(&table(&rows).render(Paint::stdout())),
    }
}

/// Asks one once.
async fn look(named: Named) -> Row {
    let asked = tokio::time::timeout(ANSWER_WITHIN, ask(&named)).await;
    let asked = asked.unwrap_or_else(|_| {
        Err(CliError::NoDaemon {
            place: named.place(),
            reason: format!("it did not answer within {} s", ANSWER_WITHIN.as_secs()),
            fix: String::new(),
        })
    });
    let (job, away) = match asked {
        Ok(status) => (Some(of_status(&status)), None),
        Err(e) => (None, Some(Away::of(&e, None))),
    };
    Row {
        context: named.name().to_owned(),
        place: named.place(),
        away,
        job,
    }
}

async fn ask(named: &Named) -> Result<v1::Status, CliError> {
    let endpoint = named.endpoint().await?;
    let mut client = endpoint.connect().await?;
    let asked = endpoint.ask(client.get_status(v1::GetStatusRequest {}));
    asked.await
}

/// With the time that is left if all steps take as long as the last one.
fn of_status(status: &v1::Status) -> Glance {
    let mut pace = Pace::default();
    pace.observe(status);
    Glance::of(status, pace.eta_s(status))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "CONTEXT", "JOB", "STATE", ">STEP", ">DONE", ">ETA", ">ETTR", ">GOODPUT", ">UP", ">EPOCH",
        ">ALARMS", "TROUBLE",
    ]);
    let zone = *chrono::Local::now().offset();
    for row in rows {
        let of = |text: fn(&Glance) -> String| row.job.as_ref().map_or("-".to_owned(), text);
        table.row([
            row.context.clone(),
            of(|job| job.name.clone()),
            row.state().to_owned(),
            of(|job| format!("{}{}", job.step, of_total(job.steps_total))),
            of(|job| job.percent().map_or("-".to_owned(), |p| format!("{p:.0}%"))),
            of(|job| job.eta_s.map_or("-".to_owned(), clock)),
            of(|job| ratio(job.ettr_sliding)),
            of(|job| ratio(job.goodput)),
            of(|job| format!("{}/{}", job.roles_up, job.roles)),
            of(|job| job.epoch.map_or("-".to_owned(), |epoch| epoch.to_string())),
            of(|job| job.alarms.to_string()),
            row.trouble(zone),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_context_is_a_line_also_one_that_is_not_reached() {
        let status = v1::Status {
            job: "arith".to_owned(),
            state: "running".to_owned(),
            step: 30,
            steps_total: 40,
            step_seconds: 6.0,
            ettr_sliding: 0.973,
            goodput: 0.95,
            roles: vec![v1::RoleStatus {
                state: "running".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let row = |context: &str, job, away| Row {
            context: context.to_owned(),
            place: String::new(),
            away,
            job,
        };
        let away = Away {
            since_ms: None,
            why: "there is no such socket".to_owned(),
        };
        let rows = [
            row("gone", None, Some(away)),
            row("prod", Some(of_status(&status)), None),
        ];
        let text = table(&rows).render(Paint::plain());
        let words = |line: usize| {
            let line = text.lines().nth(line).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words(1),
            "gone - away - - - - - - - - there is no such socket"
        );
        assert_eq!(
            words(2),
            "prod arith running 30/40 75% 1m00s 0.973 0.950 1/1 - 0"
        );
    }
}
