//! The name by which a person knows a process.

/// Longer titles are cut: they are shown in one line.
const MOST_CHARS: usize = 64;

/// The title that a process gave itself (`VLLM::EngineCore`, `sglang::scheduler`), else the name
/// that the kernel has for it.
///
/// `setproctitle` writes one text over the arguments and leaves zeroes behind it, so a command
/// line of one word is a title. What was started without arguments looks the same: there the word
/// is the program's path.
pub(crate) fn name(comm: &str, command: &[u8]) -> String {
    let end = command.iter().position(|byte| *byte == 0);
    let (first, rest) = command.split_at(end.unwrap_or(command.len()));
    let title = String::from_utf8_lossy(first);
    let title = title.trim();
    let is_title = rest.iter().all(|byte| *byte == 0) && !title.is_empty();
    let name = match title.strip_prefix('/') {
        _ if !is_title => comm,
        Some(path) => path.rsplit('/').next().unwrap_or(comm),
        None => title,
    };
    let shown = name.chars().filter(|c| !c.is_control());
    shown.take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_that_was_set_is_the_name() {
        assert_eq!(
            name("VLLM::EngineCor", b"VLLM::EngineCore\0\0\0\0"),
            "VLLM::EngineCore"
        );
        let numbered = b"sglang::scheduler TP0";
        assert_eq!(name("sglang::schedul", numbered), "sglang::scheduler TP0");
    }

    #[test]
    fn else_it_is_what_the_kernel_says() {
        assert_eq!(name("python3", b"/usr/bin/python3\0-m\0x\0"), "python3");
        assert_eq!(name("sh", b"/bin/sh\0"), "sh");
        assert_eq!(name("kworker/0:1", b""), "kworker/0:1", "and of a zombie");
    }

    #[test]
    fn a_name_fits_one_line() {
        let long = format!("a\nb{}\0", "x".repeat(200));
        assert_eq!(name("c", long.as_bytes()).chars().count(), MOST_CHARS);
        assert!(name("c", long.as_bytes()).starts_with("abx"));
    }
}
