//! Seeded bugs of several controllers: each is one guard left out. Only with the feature `mutations`, which no program has,
//! can one be switched on; the fault search must find every one of them.

/// A guard that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The head is moved whoever has the leader's place.
    SkipCompare,
    /// A turn is acknowledged when its group is put, before it counts.
    AcknowledgeEarly,
    /// What follows from a record leaves when its group is put, before it counts.
    ActEarly,
    /// A node joins a leader of an earlier term than it was joined to.
    JoinEarlierTerm,
    /// A leader whose lease was not lengthened in time goes on.
    NoSelfFence,
    /// A lease that is over is taken for one that was lengthened.
    ReviveLease,
    /// What a disk has beyond the chain is kept, and the chain goes on after it.
    KeepUnregistered,
    /// The number of a term is one more than that of the last leader that was seen.
    EpochTwice,
    /// A controller leads before it has the last groups.
    LeadStale,
    /// A controller that lost its place goes on to welcome nodes.
    WelcomeDeposed,
    /// Groups that are fetched together are applied in the order in which they came.
    Unordered,
    /// A base counts before all of it is there.
    HalfBase,
    /// The head is moved from wherever it is: a request that was late moves it back.
    SkipHead,
    /// A silent leader is replaced though the arbiter answers this candidate as little. Breaks nothing, as its sign is read
    /// again before its lease is taken away, and as the fence is the compare.
    NoSecondOpinion,
}

impl Bug {
    /// Those that the search must find.
    pub const ALL: [Bug; 13] = [
        Bug::SkipCompare,
        Bug::AcknowledgeEarly,
        Bug::ActEarly,
        Bug::JoinEarlierTerm,
        Bug::NoSelfFence,
        Bug::ReviveLease,
        Bug::KeepUnregistered,
        Bug::EpochTwice,
        Bug::LeadStale,
        Bug::WelcomeDeposed,
        Bug::Unordered,
        Bug::HalfBase,
        Bug::SkipHead,
    ];
}
