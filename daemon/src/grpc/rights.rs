//! What a caller of the control API may, and by whose word.
//!
//! | who | by whose word | looks | changes |
//! | --- | --- | --- | --- |
//! | an operator | the socket's mode and the kernel's; a token that was proven | yes | yes, logged |
//! | who breaks the glass | a token that was proven | yes | yes, logged; faults on a protected job too |
//! | a viewer | a token that was proven | yes | no, logged |
//! | a role | the kernel's | no, logged | no, logged |
//! | a person whose token is over, or was taken back | a token that was proven | no, logged | no, logged |
use super::bounded::Place;
use super::revoked::Revoked;
use crate::launcher::is_of_a_role;
use robust_identity::Person;
use robust_shared::verbs::{self, Does};
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tonic::transport::server::TcpConnectInfo;

/// What a caller may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    Operator,
    /// Everything, and faults on a protected job, which are nobody else's where there is such a token.
    BreakGlass,
    /// To look.
    Viewer,
    /// Nothing: it is a process of a role, or may be.
    Role,
    /// Nothing any more: the token of a person, who is still connected, is over, or was taken back.
    Over,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is answered.
    Through,
    /// It is written down, carried out, and what came of it is written down.
    Logged,
    /// It is not carried out, and that is written down.
    Refused,
}

/// Who is at the other end of a connection; its requests know it.
#[derive(Clone)]
pub(super) struct Caller {
    peer: Peer,
    rights: Rights,
    /// Its token was taken back.
    is_out: bool,
}

/// Over what a connection came.
#[derive(Clone)]
pub(super) enum Peer {
    /// The socket.
    Local(Option<UCred>),
    /// TCP, with whose own token was proven, if anybody's, and its place among all callers for as long as it lasts.
    Tcp(
        TcpConnectInfo,
        Option<Person>,
        #[expect(dead_code, reason = "held")] Arc<Place>,
    ),
}

impl Caller {
    /// One that has these rights.
    pub fn new(peer: Peer, rights: Rights) -> Self {
        Self {
            peer,
            rights,
            is_out: false,
        }
    }

    /// The same as things are now: some tokens were taken back.
    pub fn unless(self, revoked: &Revoked) -> Self {
        let is_out = match &self.peer {
            Peer::Tcp(_, Some(person), _) => revoked.has(person),
            Peer::Tcp(..) | Peer::Local(_) => false,
        };
        Self { is_out, ..self }
    }

    /// Through the socket, which its mode opens for the user of the daemon alone: an operator, unless it is a process
    /// of a role, which runs as that user too.
    pub fn local(stream: &UnixStream) -> Self {
        let peer = stream.peer_cred().ok();
        // A process of a namespace around this one has the number 0; roles are within.
        let is_a_role = |peer: UCred| {
            let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
            pid.is_some_and(|pid| pid > 0 && is_of_a_role(pid))
        };
        let rights = match peer.is_none_or(is_a_role) {
            true => Rights::Role,
            false => Rights::Operator,
        };
        Self::new(Peer::Local(peer), rights)
    }

    /// What it may now.
    pub fn rights(&self) -> Rights {
        match &self.peer {
            Peer::Tcp(_, Some(person), _) if self.is_out || person.is_over() => Rights::Over,
            Peer::Tcp(..) | Peer::Local(_) => self.rights,
        }
    }

    /// Who it is, by the kernel's word or by the token that was proven.
    pub fn who(&self) -> String {
        let local = match &self.peer {
            Peer::Tcp(tcp, person, _) => {
                let from = tcp.remote_addr();
                let from = from.map_or_else(|| "somewhere".to_owned(), |a| a.to_string());
                let kind = self.rights.kind();
                return match (person, self.rights) {
                    (Some(person), _) => format!("{kind} {} from {from}", person.name()),
                    (None, Rights::BreakGlass) => format!("the {kind} token from {from}"),
                    (None, _) => format!("the {kind}'s token from {from}"),
                };
            }
            Peer::Local(peer) => peer,
        };
        let Some(peer) = local else {
            return "the socket".to_owned();
        };
        let uid = peer.uid();
        let name = user_name(uid).map_or_else(String::new, |name| format!(" ({name})"));
        match peer.pid() {
            Some(pid) => format!("uid {uid}{name}, pid {pid}"),
            None => format!("uid {uid}{name}"),
        }
    }
}

impl Rights {
    /// Who has them, as tokens of persons and the audit log name it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::BreakGlass => "break-glass",
            Self::Viewer => "viewer",
            Self::Role => "role",
            Self::Over => "former",
        }
    }

    /// What becomes of a request for this method.
    pub(super) fn to(self, method: &str) -> Way {
        match (verbs::does(method), self) {
            (Some(Does::Looks), Self::Operator | Self::BreakGlass | Self::Viewer) => Way::Through,
            (Some(Does::Changes), Self::Operator | Self::BreakGlass) => Way::Logged,
            _ => Way::Refused,
        }
    }

    /// What it is too little for.
    pub(super) fn falls_short_of(self, what: &str) -> String {
        match self {
            Self::Role => format!(
                "{what} is refused: this shell looks like a process of the job (it runs inside one, or under a sandbox \
                 that robustd does not have). Use another shell, or robustctl --connect with a token (needs robustd \
                 --listen)"
            ),
            Self::Viewer => format!("{what} needs an operator's rights; this token may only look"),
            Self::Over => format!(
                "{what} is refused: your token has expired or was revoked. Ask whoever holds the daemon's own token for \
                 a new one: `robustctl token create`"
            ),
            Self::Operator | Self::BreakGlass => format!("{what} is no method of this daemon"),
        }
    }
}

/// As the machine's own list has it; users of a directory service stay numbers.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_what_is_as_the_table_above_says_and_an_unknown_method_is_nobodys() {
        let changes = verbs::ALL.iter().map(|verb| (verb.call, true));
        let methods = verbs::LOOKS.iter().map(|call| (*call, false));
        for (method, changes) in methods.chain(changes) {
            let all = [
                Rights::Operator,
                Rights::BreakGlass,
                Rights::Viewer,
                Rights::Role,
                Rights::Over,
            ];
            let ways = all.map(|r| r.to(method));
            let shown = [
                Way::Through,
                Way::Through,
                Way::Through,
                Way::Refused,
                Way::Refused,
            ];
            let changed = [
                Way::Logged,
                Way::Logged,
                Way::Refused,
                Way::Refused,
                Way::Refused,
            ];
            assert_eq!(ways == shown, !changes, "{method}");
            assert_eq!(ways == changed, changes, "{method}");
        }
        assert_eq!(Rights::Operator.to("Erase"), Way::Refused);
    }
}
