//! What was meant by a name that there is not.

/// The known name that is so near to this one that it was probably meant; the first of several.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    // A name with no letter in common is never meant.
    let far = length.div_ceil(3).max(1).min(length.saturating_sub(1));
    let with_distance = known.into_iter().map(|k| (distance(name, k), k));
    let (away, near) = with_distance.min_by_key(|(away, _)| *away)?;
    (away <= far).then_some(near)
}

/// What to write instead: the nearest name, or all there are after words that say of what.
///
/// "did you mean `trainer`?", "the roles are `trainer`, `rollout`"
pub fn instead_of(name: &str, known: &[&str], all_are: &str) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => {
            let quoted: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
            format!("{all_are} {}", quoted.join(", "))
        }
    }
}

/// Levenshtein's distance; names longer than 64 characters count as far.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().max(b.len()) > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_what_was_meant_and_another_word_nothing() {
        let roles = ["trainer", "rollout", "agent"];
        assert_eq!(nearest("trianer", roles), Some("trainer"));
        assert_eq!(nearest("rolout", roles), Some("rollout"));
        assert_eq!(nearest("store", roles), None);
        assert_eq!(nearest("trainer", []), None);
        assert_eq!(nearest("z", ["a"]), None, "no letter in common");
        assert_eq!(
            nearest("n3", ["n1", "n2"]),
            Some("n1"),
            "the first of equals"
        );
    }

    #[test]
    fn what_to_write_instead_is_a_sentence() {
        let roles = ["trainer", "rollout"];
        let instead = |name| instead_of(name, &roles, "the roles are");
        assert_eq!(instead("trainr"), "did you mean `trainer`?");
        assert_eq!(instead("store"), "the roles are `trainer`, `rollout`");
        assert_eq!(instead_of("store", &[], "the roles are"), "there is none");
    }

    #[test]
    fn a_name_of_any_length_is_compared_without_much_work() {
        let long = "x".repeat(100_000);
        assert_eq!(nearest(&long, ["trainer"]), None);
    }
}
