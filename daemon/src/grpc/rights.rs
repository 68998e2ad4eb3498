//! What a caller of the control API may, and by whose word.
use crate::launcher::is_of_a_role;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tonic::transport::server::TcpConnectInfo;

/// What a caller may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    Operator,
    /// To look.
    Viewer,
    /// Nothing: it is a process of a role, or may be.
    Role,
}

/// Who is at the other end of a connection; its requests know it.
#[derive(Clone)]
pub(super) struct Caller {
    peer: Peer,
    rights: Rights,
}

/// Over what a connection came.
#[derive(Clone)]
pub(super) enum Peer {
    /// The socket.
    Local(Option<UCred>),
    /// TCP, with its place among all callers for as long as it lasts.
    Tcp(
        TcpConnectInfo,
        #[expect(dead_code, reason = "held")] Arc<robust_http::Caller>,
    ),
}

impl Caller {
    /// One that has these rights.
    pub fn new(peer: Peer, rights: Rights) -> Self {
        Self { peer, rights }
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

    /// What it may.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Who it is, by the kernel's word or by the token that was proven.
    pub fn who(&self) -> String {
        let local = match &self.peer {
            Peer::Tcp(tcp, _) => {
                let token = match self.rights {
                    Rights::Viewer => "viewer's",
                    _ => "operator's",
                };
                let from = tcp.remote_addr();
                let from = from.map_or_else(|| "somewhere".to_owned(), |a| a.to_string());
                return format!("the {token} token from {from}");
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
    /// What it is too little for.
    pub(super) fn falls_short_of(self, what: &str) -> String {
        match self {
            Self::Role => format!(
                "{what} is not for roles: the process that asks is one of a role, or cannot gain rights as they \
                 cannot (no_new_privs); from such a shell use robustd --listen and robustctl --connect, which take \
                 a token"
            ),
            _ => format!("{what} needs an operator's rights; this token may only look"),
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
