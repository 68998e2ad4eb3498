//! What a debugger says of a process, as far as it can be compared with what one says of its peers.

/// Characters of a frame that people are shown: a template's name is as long as a page.
const WIDEST: usize = 200;

/// Functions that are told of a stack: an exchange among ranks lies below the library's own frames.
const KEPT: usize = 40;

/// A thread as a debugger shows it.
#[derive(Default)]
struct Shown<'a> {
    heading: &'a str,
    frames: Vec<String>,
}

/// The functions that the busiest thread is in, the innermost first: of Python the main thread, of all
/// else the one that used most processor time. `ticks`: of each thread.
pub(super) fn of_busiest(said: &str, ticks: &[(u32, u64)]) -> Vec<String> {
    let mut threads = vec![Shown::default()];
    for line in said.lines() {
        if line.starts_with("Thread ") {
            threads.push(Shown {
                heading: line,
                ..Shown::default()
            });
        } else if let (Some(frame), Some(thread)) = (frame(line), threads.last_mut()) {
            thread.frames.push(frame);
        }
    }
    threads.retain(|thread| !thread.frames.is_empty());
    let main = |t: &Shown<'_>| t.heading.contains("MainThread");
    let used = |t: &Shown<'_>| {
        let of = |(id, _): &&(u32, u64)| t.heading.contains(&format!("(LWP {id})"));
        ticks.iter().find(of).map_or(0, |(_, ticks)| *ticks)
    };
    // Of equals the first: gdb shows the main thread first.
    let busiest = threads.into_iter().rev().max_by_key(|t| (main(t), used(t)));
    let mut frames = busiest.map(|thread| thread.frames).unwrap_or_default();
    frames.truncate(KEPT);
    frames
}

/// The stacks of all threads as people are shown them: a thread's number, and a line for each frame, the innermost
/// first.
pub(super) fn by_thread(said: &str) -> Vec<(u32, Vec<String>)> {
    let mut threads: Vec<(u32, Vec<String>)> = Vec::new();
    let mut among = false;
    for line in said.lines() {
        if let Some(heading) = line.strip_prefix("Thread ") {
            let number = number_of(heading);
            among = number.is_some();
            threads.extend(number.map(|number| (number, Vec::new())));
        } else if let (Some(frame), Some((_, frames))) = (as_shown(line), threads.last_mut())
            && among
            && frames.len() < KEPT
        {
            frames.push(frame);
        }
    }
    threads.retain(|(_, frames)| !frames.is_empty());
    threads
}

/// `1 (Thread 0x7f1 (LWP 7) "worker"):` or `1 (process 7):` of gdb, `7 (idle): "MainThread"` of py-spy.
fn number_of(heading: &str) -> Option<u32> {
    let marked = ["(LWP ", "(process "];
    let found = marked.iter().find_map(|mark| heading.split_once(mark));
    let number = found.map_or(heading, |(_, rest)| rest);
    let mut words = number.split(|c: char| !c.is_ascii_alphanumeric());
    words.next()?.parse().ok()
}

/// A frame with its place and without its address.
fn as_shown(line: &str) -> Option<String> {
    let text = match line.strip_prefix('#') {
        Some(of_gdb) => {
            let (_, rest) = of_gdb.split_once(' ')?;
            let rest = rest.trim_start();
            match rest.strip_prefix("0x") {
                Some(address) => address.split_once(" in ")?.1,
                None => rest,
            }
        }
        None => line.strip_prefix("    ")?.trim(),
    };
    (!text.is_empty()).then(|| text.chars().take(WIDEST).collect())
}

/// `#3  0x7f.. in poll () from /lib/libc.so.6` of gdb, `    step (train/loop.py:12)` of py-spy.
fn frame(line: &str) -> Option<String> {
    if let Some(of_gdb) = line.strip_prefix('#') {
        let (_, rest) = of_gdb.split_once(' ')?;
        let rest = rest.trim_start();
        let called = match rest.strip_prefix("0x") {
            Some(rest) => rest.split_once(" in ")?.1,
            None => rest,
        };
        let name = called.split('(').next()?.trim();
        return (!name.is_empty() && name != "??").then(|| without_hash(name).to_owned());
    }
    let of_py_spy = line.strip_prefix("    ")?.trim_end();
    let (name, place) = of_py_spy.rsplit_once(" (")?;
    let file = place.trim_end_matches(')').split(':').next()?;
    let file = file.rsplit('/').next()?;
    Some(match file.ends_with(".py") {
        true => format!("{name} ({file})"),
        false => name.to_owned(),
    })
}

/// A symbol of Rust ends with `::h` and sixteen digits.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_shown_every_thread_with_its_number_files_and_lines() {
        let of_py_spy = "Process 7: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n\
                         Thread 9 (idle): \"pin_memory\"\n    wait (threading.py:324)\n\
                         Thread 0x7F00 (idle)\n    nobody (knows.py:1)\n\
                         Thread 7 (active): \"MainThread\"\n    step (train.py:12)\n    main (train.py:30)\n";
        let expected = [
            (9, vec!["wait (threading.py:324)".to_owned()]),
            (
                7,
                vec![
                    "step (train.py:12)".to_owned(),
                    "main (train.py:30)".to_owned(),
                ],
            ),
        ];
        assert_eq!(by_thread(of_py_spy), expected);
        let of_gdb = "[New LWP 9]\nThread 1 (Thread 0x7f1 (LWP 7) \"worker\"):\n\
                      #0  0x00007f in epoll_wait () from /lib/libc.so.6\n\
                      #1  main_loop (argc=1) at x.c:3\n\
                      Thread 2 (process 9):\n#0  0x01 in poll ()\n";
        let first = vec![
            "epoll_wait () from /lib/libc.so.6".to_owned(),
            "main_loop (argc=1) at x.c:3".to_owned(),
        ];
        assert_eq!(
            by_thread(of_gdb),
            [(7, first), (9, vec!["poll ()".to_owned()])]
        );
        assert!(by_thread("ptrace: not permitted").is_empty());
        let long = format!("Thread 7 (active)\n    {}\n", "x".repeat(1000));
        assert_eq!(by_thread(&long)[0].1[0].len(), WIDEST);
    }

    #[test]
    fn of_python_it_is_the_main_thread_with_files_and_without_lines() {
        let said = "Process 7: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n\
                    Thread 9 (idle): \"pin_memory\"\n    wait (threading.py:324)\n\
                    Thread 7 (active): \"MainThread\"\n    ncclAllReduce (libnccl.so.2)\n    \
                    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    main (train.py:30)\n";
        let frames = of_busiest(said, &[(9, 100), (7, 1)]);
        let expected = [
            "ncclAllReduce",
            "all_reduce (distributed_c10d.py)",
            "main (train.py)",
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn of_all_else_it_is_the_thread_that_used_most_without_addresses_and_hashes() {
        let said = "Thread 1 (Thread 0x7f1 (LWP 7) \"worker\"):\n\
                    #0  0x00007f in epoll_wait () from /lib/libc.so.6\n\
                    Thread 2 (Thread 0x7f2 (LWP 9) \"compute\"):\n\
                    #0  0x00007f12 in ?? ()\n\
                    #1  0x000055 in robust_worker::trainer::exchange::Exchange::sum::h0123456789abcdef ()\n\
                    #2  main_loop (argc=1) at x.c:3\n";
        let frames = of_busiest(said, &[(7, 1), (9, 50)]);
        let expected = [
            "robust_worker::trainer::exchange::Exchange::sum",
            "main_loop",
        ];
        assert_eq!(frames, expected);
        assert_eq!(of_busiest(said, &[]), ["epoll_wait"], "the main thread");
        assert_eq!(of_busiest("ptrace: not permitted", &[]), [""; 0]);
    }
}
