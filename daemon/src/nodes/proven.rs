//! Who calls at `--listen-nodes`, and by what that is known.

/// Who a caller at `--listen-nodes` has proven to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proven {
    /// This node.
    Node(String),
    /// One that was a node: its certificate was taken back, or another key has its name.
    Former,
    /// Somebody with this token.
    Holder(TokenId),
    /// Somebody with a certificate from outside that makes him no node, and why.
    Refused(String),
}

/// By what whoever is answered proves who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// A certificate by the leader.
    Certificate,
    /// This token.
    Token(TokenId),
    /// A certificate from outside.
    Outside,
}

/// A join token, by a digest that tells nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TokenId {
    /// The one that all may use.
    Shared,
    /// One that was made for one machine.
    Single(String),
}
