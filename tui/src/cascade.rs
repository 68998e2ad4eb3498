//! Incidents that follow from another one, beside it.
use robust_proto::v1::Incident;

/// Those that stand for themselves, in their order: nothing before them is known that they follow from.
pub fn firsts(all: &[Incident]) -> impl DoubleEndedIterator<Item = &Incident> {
    all.iter().filter(|i| !is_folded(all, i))
}

/// Those that follow from the one of this number.
pub fn under(all: &[Incident], first: u64) -> impl Iterator<Item = &Incident> {
    all.iter().filter(move |i| i.under == first)
}

/// All of them, each followed by those that follow from it.
pub fn in_order(all: &[Incident]) -> impl Iterator<Item = &Incident> {
    firsts(all).flat_map(move |first| std::iter::once(first).chain(under(all, first.id)))
}

/// Whether it is shown with another one, which is there.
pub fn is_folded(all: &[Incident], i: &Incident) -> bool {
    i.under != 0 && all.iter().any(|first| first.id == i.under)
}

/// ` (+3 that follow from it)`, or nothing.
pub fn count(all: &[Incident], first: u64) -> String {
    match under(all, first).count() {
        0 => String::new(),
        1 => " (+1 that follows from it)".to_owned(),
        more => format!(" (+{more} that follow from it)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_followed_by_what_follows_from_it_and_one_whose_first_is_forgotten_stands_alone() {
        let incident = |(id, under)| Incident {
            id,
            under,
            ..Default::default()
        };
        let all = [(4, 1), (5, 0), (6, 0), (7, 5), (8, 6), (9, 5)].map(incident);
        let order: Vec<u64> = in_order(&all).map(|i| i.id).collect();
        assert_eq!(order, [4, 5, 7, 9, 6, 8]);
        let alone: Vec<u64> = firsts(&all).map(|i| i.id).collect();
        assert_eq!(alone, [4, 5, 6]);
        assert_eq!(count(&all, 5), " (+2 that follow from it)");
        assert_eq!(count(&all, 4), "");
    }
}
