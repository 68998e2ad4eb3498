//! The handshake written down a second time, from the documentation.

use std::time::Duration;

use super::raw::{EAGER, Ep, HELLO, PROVE, READY, REPLY, Raw, WELCOME};

/// Where the raw peer says that it listens: nobody does.
const LISTENS: [u8; 44] = [1; 44];

const LIMIT: Duration = Duration::from_secs(10);

/// A handshake's choices.
pub struct Handshake {
    pub token: u64,
    pub owners: [u64; 2],
    pub listens: [u8; 44],
    pub nonces: [[u8; 32]; 2],
}

pub fn hello(token: u64, owner: u64, nonce: [u8; 32]) -> Vec<u8> {
    let (token, owner) = (token.to_le_bytes(), owner.to_le_bytes());
    [b"RTP7", &token[..], &owner, &LISTENS, &nonce].concat()
}

pub fn prove(token: u64, proof: [u8; 32]) -> Vec<u8> {
    [&token.to_le_bytes()[..], &proof].concat()
}

/// The token's key, as the transport derives it.
pub fn job_key(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("robust transport token v1", secret)
}

impl Handshake {
    /// Reads a Welcome; its last 32 bytes are the callee's proof.
    pub fn welcomed(token: u64, owner: u64, nonce: [u8; 32], welcome: &[u8]) -> Handshake {
        assert_eq!(
            (&welcome[..4], welcome.len()),
            (&b"RTP7"[..], 4 + 8 + 8 + 32 + 32)
        );
        assert_eq!(welcome[4..12], token.to_le_bytes());
        Handshake {
            token,
            owners: [
                owner,
                u64::from_le_bytes(welcome[12..20].try_into().unwrap()),
            ],
            listens: LISTENS,
            nonces: [nonce, welcome[20..52].try_into().unwrap()],
        }
    }

    pub fn hash(&self, key: &[u8; 32], role: &[u8; 8]) -> [u8; 32] {
        let [caller, callee] = self.owners.map(u64::to_le_bytes);
        let token = self.token.to_le_bytes();
        let all = [
            &role[..],
            &token,
            &caller,
            &callee,
            &self.listens,
            &self.nonces[0][..],
            &self.nonces[1],
        ]
        .concat();
        *blake3::keyed_hash(key, &all).as_bytes()
    }

    pub fn session(&self, key: &[u8; 32]) -> u64 {
        u64::from_be_bytes(self.hash(key, b"session.")[..8].try_into().unwrap())
    }
}

/// Calls and proves the job's token, as a peer of the job would; answers the session.
pub fn call(raw: &mut Raw, ep: Ep, key: &[u8; 32]) -> u64 {
    let (token, owner, nonce) = (11, 12, [13; 32]);
    raw.send(ep, HELLO, &[], &hello(token, owner, nonce), EAGER | REPLY);
    let welcome = raw.expect(WELCOME, LIMIT);
    let shake = Handshake::welcomed(token, owner, nonce, &welcome);
    assert_eq!(
        welcome[52..],
        shake.hash(key, b"callee.."),
        "the callee's proof"
    );
    let proof = shake.hash(key, b"caller..");
    raw.send(ep, PROVE, &[], &prove(token, proof), EAGER | REPLY);
    assert_eq!(raw.expect(READY, LIMIT), token.to_le_bytes());
    shake.session(key)
}

/// Answers a call and proves the job's token, or another one; answers the session.
pub fn answer(raw: &mut Raw, ep: Ep, owner: u64, key: &[u8; 32]) -> u64 {
    let hello = raw.expect(HELLO, LIMIT);
    let number = |at: usize| u64::from_le_bytes(hello[at..at + 8].try_into().unwrap());
    let (token, nonce) = (number(4), [21; 32]);
    let shake = Handshake {
        token,
        owners: [number(12), owner],
        listens: hello[20..64].try_into().unwrap(),
        nonces: [hello[64..96].try_into().unwrap(), nonce],
    };
    let proof = shake.hash(key, b"callee..");
    let (token_bytes, owner) = (token.to_le_bytes(), owner.to_le_bytes());
    let welcome = [b"RTP7", &token_bytes[..], &owner, &nonce, &proof].concat();
    raw.send(ep, WELCOME, &[], &welcome, EAGER | REPLY);
    shake.session(key)
}
