//! How two transports show each other that they have the same job token (T-9).
//!
//! ```text
//!  caller                                                callee
//!    │ Hello: token, owner, address, nonce ──────────────► │ Called
//!    │ ◄────────────── Welcome: token, owner, nonce, proof │ challenged
//!    │ wrong: link closed, "not of this job"               │
//!    │ Prove: token, proof ──────────────────────────────► │ wrong: link closed
//!    │ ◄────────────────────────────────────── Ready: token│ Open
//!  Open: Read, Note, Forget ─────────────────────────────► │
//! ```
//! A proof is a keyed BLAKE3 of the sender's role and of everything that both sides chose: it is
//! good for this handshake and this direction only. The job token itself is never sent. From the
//! same input both sides derive the session number that reads and notes carry: UCX names the
//! endpoint of a message by a number that whoever writes UCX's own wire format could forge.
//!
//! Proofs keep strangers out; they do not hide or sign what is sent later. Who can write into
//! the TCP stream of a link that is open can change bytes: digests are checked end to end.

use blake3::Hash;

use super::Engine;
use super::link::{Breach, LinkState};
use super::secrets::Nonce;
use super::wire::{AddrBytes, Hello, Prove, Ready, Welcome};
use crate::address::Address;
use crate::road::{LinkId, MessageKind};
use crate::token::JobToken;

/// Where a call stands that we made.
pub(super) struct Call {
    token: u64,
    nonce: Nonce,
    /// Set by a Welcome with the right proof.
    answered: Option<Agreed>,
}

/// What whoever called us must prove.
pub(super) struct Challenge {
    token: u64,
    expected: Hash,
    agreed: Agreed,
}

/// What an open link knows of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The peer's transport; 0 if it called us, for regions are read over our own calls only.
    pub owner: u64,
    pub session: u64,
}

/// Everything both sides chose.
struct Transcript {
    token: u64,
    owners: [u64; 2],
    /// Where the caller listens.
    listens: AddrBytes,
    nonces: [Nonce; 2],
}

const CALLER: &[u8; 8] = b"caller..";
const CALLEE: &[u8; 8] = b"callee..";
const SESSION: &[u8; 8] = b"session.";

const STRANGER: Breach = Breach("it does not have this job's token");
const OTHER_VERSION: Breach = Breach("it speaks another version of the protocol");
const OUT_OF_TURN: Breach = Breach("a message of the handshake came out of turn");

impl Transcript {
    fn hash(&self, job: &JobToken, role: &[u8; 8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(job.key());
        hasher.update(role).update(&self.token.to_le_bytes());
        for owner in self.owners {
            hasher.update(&owner.to_le_bytes());
        }
        hasher.update(&self.listens);
        for nonce in self.nonces {
            hasher.update(&nonce);
        }
        hasher.finalize()
    }

    fn session(&self, job: &JobToken) -> u64 {
        let hash = self.hash(job, SESSION);
        hash.as_bytes()[..8]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl Engine {
    /// A call's state and its first message.
    pub(super) fn new_call(&mut self) -> (Call, Vec<u8>) {
        let (token, nonce) = (self.secrets.number(), self.secrets.nonce());
        let (owner, listens) = (self.owner, self.addr.to_bytes());
        let call = Call {
            token,
            nonce,
            answered: None,
        };
        let hello = Hello {
            token,
            owner,
            listens,
            nonce,
        };
        (call, hello.to_bytes())
    }

    pub(super) fn on_hello(&mut self, id: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let hello = Hello::from_bytes(bytes).ok_or(OTHER_VERSION)?;
        let (token, nonce) = (hello.token, self.secrets.nonce());
        let Some(LinkState::Called { challenge, .. }) = self.state_mut(id) else {
            return Err(OUT_OF_TURN);
        };
        if challenge.is_some() {
            return Err(OUT_OF_TURN);
        }
        let transcript = Transcript {
            token,
            owners: [hello.owner, self.owner],
            listens: hello.listens,
            nonces: [hello.nonce, nonce],
        };
        let job = &self.config.token;
        let expected = Challenge {
            token,
            expected: transcript.hash(job, CALLER),
            agreed: Agreed {
                owner: 0,
                session: transcript.session(job),
            },
        };
        let welcome = Welcome {
            token,
            owner: self.owner,
            nonce,
            proof: transcript.hash(job, CALLEE),
        };
        if let Some(LinkState::Called { challenge, .. }) = self.state_mut(id) {
            *challenge = Some(expected);
        }
        self.name_caller(id, Address::from_bytes(hello.listens));
        self.send(id, MessageKind::Welcome, welcome.to_bytes());
        Ok(())
    }

    pub(super) fn on_welcome(&mut self, id: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let welcome = Welcome::from_bytes(bytes).ok_or(OTHER_VERSION)?;
        let Some(LinkState::Calling { call, .. }) = self.state(id) else {
            return Err(OUT_OF_TURN);
        };
        if call.answered.is_some() || call.token != welcome.token {
            return Err(OUT_OF_TURN);
        }
        let transcript = Transcript {
            token: call.token,
            owners: [self.owner, welcome.owner],
            listens: self.addr.to_bytes(),
            nonces: [call.nonce, welcome.nonce],
        };
        let job = &self.config.token;
        // `Hash` compares in constant time.
        if transcript.hash(job, CALLEE) != welcome.proof {
            return Err(STRANGER);
        }
        let prove = Prove {
            token: call.token,
            proof: transcript.hash(job, CALLER),
        };
        let agreed = Agreed {
            owner: welcome.owner,
            session: transcript.session(job),
        };
        if let Some(LinkState::Calling { call, .. }) = self.state_mut(id) {
            call.answered = Some(agreed);
        }
        self.send(id, MessageKind::Prove, prove.to_bytes());
        Ok(())
    }

    pub(super) fn on_prove(&mut self, id: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let prove = Prove::from_bytes(bytes).ok_or(OTHER_VERSION)?;
        let Some(LinkState::Called {
            challenge: Some(challenge),
            ..
        }) = self.state(id)
        else {
            return Err(OUT_OF_TURN);
        };
        if challenge.token != prove.token || challenge.expected != prove.proof {
            return Err(STRANGER);
        }
        let (token, agreed) = (challenge.token, challenge.agreed);
        self.open(id, agreed);
        self.send(id, MessageKind::Ready, Ready { token }.to_bytes());
        Ok(())
    }

    pub(super) fn on_call_ready(&mut self, id: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let ready = Ready::from_bytes(bytes).ok_or(OTHER_VERSION)?;
        let Some(LinkState::Calling { call, .. }) = self.state(id) else {
            return Err(OUT_OF_TURN);
        };
        let agreed = call
            .answered
            .filter(|_| call.token == ready.token)
            .ok_or(OUT_OF_TURN)?;
        self.open(id, agreed);
        self.start_notes(id);
        self.start_fetches(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is changed, roles included, another proof comes out.
    #[test]
    fn a_proof_is_good_for_one_handshake_and_one_direction_only() {
        let job = JobToken::new(b"a");
        let transcript = |token, owners, port, nonces| Transcript {
            token,
            owners,
            listens: [port; Address::BYTES],
            nonces,
        };
        let base = || transcript(1, [2, 3], 7, [[4; 32], [5; 32]]);
        let proofs = [
            base().hash(&job, CALLER),
            base().hash(&job, CALLEE),
            base().hash(&job, SESSION),
            base().hash(&JobToken::new(b"b"), CALLER),
            transcript(9, [2, 3], 7, [[4; 32], [5; 32]]).hash(&job, CALLER),
            transcript(1, [3, 2], 7, [[4; 32], [5; 32]]).hash(&job, CALLER),
            transcript(1, [2, 3], 8, [[4; 32], [5; 32]]).hash(&job, CALLER),
            transcript(1, [2, 3], 7, [[5; 32], [4; 32]]).hash(&job, CALLER),
            transcript(1, [2, 3], 7, [[4; 32], [6; 32]]).hash(&job, CALLER),
        ];
        for (at, proof) in proofs.iter().enumerate() {
            assert!(!proofs[..at].contains(proof), "proof {at} came twice");
        }
        assert_eq!(base().hash(&job, CALLER), proofs[0]);
    }
}
