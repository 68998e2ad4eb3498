//! A look inside of instances, and a probe of them: what was found, and what they answered, in lines. The commands and
//! the console ask and show the same.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{bytes, millis, who};
use crate::table::Table;
use robust_proto::v1::{
    InspectPart, InspectRequest, InspectedProcess, InspectedThread, ProbeAnswer,
};
use robust_shared::printable::one_line;

/// Has instances looked at, or asked, and hands over each part as it comes.
pub async fn look(
    endpoint: &Endpoint,
    request: InspectRequest,
    mut take: impl FnMut(InspectPart) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let mut parts = endpoint.ask(client.inspect(request)).await?;
    loop {
        // Without a time limit of its own: each part has one at the daemon, and whether that is there at all the
        // connection finds out.
        match parts.message().await {
            Ok(Some(part)) => take(part)?,
            Ok(None) => return Ok(()),
            Err(status) => return Err(CliError::from_status(&status, &endpoint.place())),
        }
    }
}

/// The lines on an instance: itself, its processes, their threads with their stacks.
pub fn lines(part: &InspectPart) -> Vec<String> {
    let mut lines = vec![heading(part)];
    if !part.error.is_empty() {
        lines.push(format!("  {}", part.error));
    }
    for process in &part.processes {
        of_process(process, &mut lines);
    }
    lines
}

fn heading(part: &InspectPart) -> String {
    let mut words = vec![who(&part.role, part.index), part.state.clone()];
    if !part.phase.is_empty() {
        let time = millis(part.phase_ms as f64);
        words.push(format!("in {} for {time}", part.phase));
    }
    if !part.node.is_empty() {
        words.push(format!("on {}", part.node));
    }
    if part.incarnation > 0 {
        words.push(format!("incarnation {}", part.incarnation));
    }
    words.join("  ")
}

fn of_process(process: &InspectedProcess, lines: &mut Vec<String>) {
    if !process.state.is_empty() {
        lines.push(of_whole(process));
    }
    lines.extend(
        process
            .notes
            .iter()
            .map(|note| format!("    {}", one_line(note))),
    );
    for thread in &process.threads {
        of_thread(thread, lines);
    }
    let all = usize::try_from(process.thread_count).unwrap_or(usize::MAX);
    let hidden = all.saturating_sub(process.threads.len());
    if hidden > 0 {
        let more = match hidden {
            1 => "1 more thread".to_owned(),
            n => format!("{n} more threads"),
        };
        lines.push(format!(
            "    {more}; of those that were looked at none is busier than these"
        ));
    }
}

/// A process in a line.
fn of_whole(process: &InspectedProcess) -> String {
    let over = millis(process.over_us as f64 / 1000.0);
    let used = match (process.runs, process.cpu_us) {
        (Some(0), _) => format!("nothing of it ran within {over}"),
        (_, cpu_us) => format!("CPU {} within {over}", latency(cpu_us)),
    };
    let threads = match process.thread_count {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let mut words = vec![
        format!("  pid {} {}", process.pid, one_line(&process.name)),
        state(&process.state),
        used,
        bytes(process.rss_bytes),
        threads,
    ];
    if !process.wchan.is_empty() {
        words.push(format!("waits in {}", process.wchan));
    }
    if process.stopped_us > 0 {
        words.push(format!(
            "a debugger stopped it for up to {}",
            latency(process.stopped_us)
        ));
    }
    words.join("  ")
}

/// The kernel's letter, and what it means.
fn state(letter: &str) -> String {
    let meaning = match letter {
        "R" => "runs",
        "S" | "I" => "sleeps",
        "D" => "waits in the kernel",
        "T" => "stopped",
        "t" => "held by a debugger",
        "Z" | "X" | "x" => "ended",
        _ => return letter.to_owned(),
    };
    format!("{letter} ({meaning})")
}

fn of_thread(thread: &InspectedThread, lines: &mut Vec<String>) {
    let line = format!(
        "    {:>7} {:<15} {} {:>9}  {}",
        thread.tid,
        one_line(&thread.name),
        thread.state,
        latency(thread.cpu_us),
        thread.wchan
    );
    lines.push(line.trim_end().to_owned());
    lines.extend(
        thread
            .frames
            .iter()
            .map(|frame| format!("        {}", one_line(frame))),
    );
    if !thread.kernel.is_empty() {
        lines.push(format!("        kernel: {}", thread.kernel.join(", ")));
    }
}

/// What instances answered: a row for each way in which one was asked.
pub fn answered(parts: &[InspectPart]) -> Table {
    let mut table = Table::new(&ANSWERS);
    for row in parts.iter().flat_map(answers) {
        table.row(row);
    }
    table
}

/// Headings of the table of answers; `>` sets a column to the right.
const ANSWERS: [&str; 6] = ["ROLE", "NODE", "ASKED", "ANSWERS", ">AFTER", "WHAT IT SAYS"];

fn answers(part: &InspectPart) -> Vec<[String; 6]> {
    let row = |what: &str, answers: &str, after: String, says: &str| {
        [
            who(&part.role, part.index),
            part.node.clone(),
            what.to_owned(),
            answers.to_owned(),
            after,
            says.to_owned(),
        ]
    };
    if part.probes.is_empty() {
        let why = match part.error.as_str() {
            "" => "nobody could ask it",
            error => error,
        };
        return vec![row("-", "no", "-".to_owned(), why)];
    }
    let of = |probe: &ProbeAnswer| {
        let answers = if probe.ok { "yes" } else { "no" };
        row(&probe.what, answers, latency(probe.us), &probe.answer)
    };
    part.probes.iter().map(of).collect()
}

/// Whether an instance answers to all ways of asking it.
pub fn is_well(part: &InspectPart) -> bool {
    !part.probes.is_empty() && part.probes.iter().all(|probe| probe.ok)
}

/// Fine where it is short: `0.35 ms`, `12 ms`, `1.34 s`; `-` for nothing.
fn latency(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..10_000 => format!("{:.2} ms", us as f64 / 1000.0),
        us => millis(us as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> InspectPart {
        InspectPart {
            role: "trainer".to_owned(),
            index: 1,
            incarnation: 7,
            node: "b".to_owned(),
            state: "running".to_owned(),
            phase: "update".to_owned(),
            phase_ms: 12_340,
            processes: vec![InspectedProcess {
                pid: 4711,
                name: "python3".to_owned(),
                state: "S".to_owned(),
                wchan: "futex_wait".to_owned(),
                cpu_us: 3_200,
                over_us: 1_000_000,
                runs: Some(4),
                rss_bytes: 3 << 30,
                thread_count: 500,
                threads: vec![InspectedThread {
                    tid: 4711,
                    name: "python3".to_owned(),
                    state: "S".to_owned(),
                    wchan: "futex_wait".to_owned(),
                    cpu_us: 3_200,
                    frames: vec!["step (train.py:12)".to_owned()],
                    kernel: vec!["futex_wait".to_owned(), "do_syscall_64".to_owned()],
                }],
                notes: vec!["py-spy failed (exit status: 1): no permission".to_owned()],
                ..InspectedProcess::default()
            }],
            ..InspectPart::default()
        }
    }

    #[test]
    fn an_instance_is_shown_from_its_state_to_the_frames_of_its_threads() {
        let text = lines(&part()).join("\n");
        let expected = "trainer-1  running  in update for 12.3 s  on b  incarnation 7
  pid 4711 python3  S (sleeps)  CPU 3.20 ms within 1.00 s  3.0 GiB  500 threads  waits in futex_wait
    py-spy failed (exit status: 1): no permission
       4711 python3         S   3.20 ms  futex_wait
        step (train.py:12)
        kernel: futex_wait, do_syscall_64
    499 more threads; of those that were looked at none is busier than these";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_stands_still_and_what_was_stopped_is_said() {
        let mut part = part();
        let process = &mut part.processes[0];
        (process.runs, process.cpu_us, process.stopped_us) = (Some(0), 0, 640_000);
        let text = lines(&part).join("\n");
        assert!(text.contains("nothing of it ran within 1.00 s"), "{text}");
        assert!(
            text.contains("a debugger stopped it for up to 640 ms"),
            "{text}"
        );
    }

    #[test]
    fn one_of_which_nothing_is_known_says_why() {
        let error = "its process is over, or is not started yet".to_owned();
        let mut gone = InspectPart {
            error,
            processes: Vec::new(),
            ..part()
        };
        let text = lines(&gone);
        assert_eq!(text[1], "  its process is over, or is not started yet");
        assert!(!is_well(&gone));
        assert_eq!(answers(&gone)[0][3], "no");
        gone.error = String::new();
        assert_eq!(answers(&gone)[0][5], "nobody could ask it");
    }

    #[test]
    fn an_instance_is_well_that_answers_to_all_that_it_was_asked() {
        let answer = |what: &str, ok| ProbeAnswer {
            what: what.to_owned(),
            ok,
            us: 350,
            answer: "it answers".to_owned(),
        };
        let mut part = part();
        part.probes = vec![answer("link", true), answer("engine", true)];
        assert!(is_well(&part));
        let row = ["trainer-1", "b", "link", "yes", "0.35 ms", "it answers"];
        assert_eq!(answers(&part)[0], row);
        part.probes[1].ok = false;
        assert!(!is_well(&part));
        assert_eq!(answers(&part)[1][3], "no");
    }
}
