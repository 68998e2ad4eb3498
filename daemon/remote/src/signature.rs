//! Who put a checkpoint there: a signature beside its manifest, by a key that is in no bucket.
//!
//! ```text
//! URL/RUN/step-7.g3/manifest.json        what it consists of: names, lengths, XXH3
//!                   manifest.signature   BLAKE3 of every shard, and a keyed BLAKE3 over run, manifest and those
//! ```
//! Who may write to the bucket, and does not have the key, can remove checkpoints, and put an older one of the same
//! run back where it was: nothing else of what they do there is believed. What a manifest says of digests alone is no
//! help against them, for they write the manifest, too, and other shards of the same XXH3.
use crate::RemoteError;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The name of its object.
pub(crate) const FILE: &str = "manifest.signature";
/// No signature is larger: it has one digest a rank.
pub(crate) const MOST_BYTES: u64 = 16 << 20;
/// The format written by this build; a higher one is refused.
const FORMAT: u32 = 1;
/// A key of fewer bytes is one that somebody thought of.
const LEAST_BYTES: usize = 32;
/// What a key is derived for, so that the file's secret is no key of anything else.
const CONTEXT: &str = "robust checkpoint signature v1";
/// Rights of all others, and all of the group's but to read: files of Kubernetes' volumes are root's and of a pod's group.
const OTHERS: u32 = 0o037;

/// What checkpoints in a store are signed with.
#[derive(Clone)]
pub struct SigningKey([u8; 32]);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// What lies beside a manifest.
#[derive(Debug, Serialize, Deserialize)]
struct Signature {
    format: u32,
    /// BLAKE3 of each shard, hex, in the manifest's order.
    shards: Vec<String>,
    /// The keyed digest, hex.
    blake3: String,
}

impl SigningKey {
    /// From a secret.
    pub fn of(secret: &[u8]) -> Result<Self, String> {
        let secret = secret.trim_ascii();
        match secret.len() {
            LEAST_BYTES.. => Ok(Self(blake3::derive_key(CONTEXT, secret))),
            bytes => Err(format!(
                "it has {bytes} bytes, and a signing key needs {LEAST_BYTES} at least: make one by \
                 `(umask 077; openssl rand -hex 32 > FILE)`"
            )),
        }
    }

    /// From a file, which nobody but its owner, us or root, and his group may read.
    pub fn read(path: &Path) -> Result<Self, RemoteError> {
        let io = RemoteError::local("read the signing key", path);
        let mut file = OpenOptions::new()
            .read(true)
            // A pipe that somebody laid there is not waited for.
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(&io)?;
        let found = file.metadata().map_err(&io)?;
        let bad = |reason: String| RemoteError::bad(path.display(), reason);
        let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner != us && owner != 0 {
            return Err(bad(format!(
                "the signing key belongs to uid {owner}, not to uid {us}: somebody else laid it there"
            )));
        }
        if found.mode() & OTHERS != 0 {
            return Err(bad(format!(
                "the signing key has mode {:o}, so others know it, or may change it: chmod 600 {}",
                found.mode() & 0o777,
                path.display()
            )));
        }
        let mut secret = Vec::new();
        file.read_to_end(&mut secret).map_err(&io)?;
        Self::of(&secret).map_err(bad)
    }

    /// The object that vouches for a manifest of a run and its shards.
    pub(crate) fn sign(&self, run: &str, manifest: &[u8], shards: &[[u8; 32]]) -> Vec<u8> {
        let hex = |digest: &[u8; 32]| blake3::Hash::from_bytes(*digest).to_hex().to_string();
        let signature = Signature {
            format: FORMAT,
            shards: shards.iter().map(hex).collect(),
            blake3: self.digest(run, manifest, shards).to_hex().to_string(),
        };
        // Numbers and text: there is nothing that JSON has not.
        serde_json::to_vec_pretty(&signature).unwrap_or_default()
    }

    /// BLAKE3 of each shard, if this key signed the manifest with them for this run; else a sentence.
    pub(crate) fn verify(
        &self,
        run: &str,
        manifest: &[u8],
        signature: &[u8],
    ) -> Result<Vec<[u8; 32]>, String> {
        let unreadable = |why: String| format!("its signature cannot be read: {why}");
        let Signature {
            format,
            shards,
            blake3,
        } = serde_json::from_slice(signature).map_err(|e| unreadable(e.to_string()))?;
        if format > FORMAT {
            return Err(format!(
                "its signature's format {format} is newer than {FORMAT}"
            ));
        }
        let read = |hex: &String| {
            let hash = blake3::Hash::from_hex(hex).map_err(|e| unreadable(e.to_string()))?;
            Ok(*hash.as_bytes())
        };
        let shards: Vec<[u8; 32]> = shards.iter().map(read).collect::<Result<_, String>>()?;
        let said = blake3::Hash::from_bytes(read(&blake3)?);
        // Hashes are compared in constant time.
        match said == self.digest(run, manifest, &shards) {
            true => Ok(shards),
            false => Err(
                "its signature is not by the key of `checkpoint.remote_signing_key_file`, or of something else: \
                 it was changed, or another job put it there"
                    .to_owned(),
            ),
        }
    }

    fn digest(&self, run: &str, manifest: &[u8], shards: &[[u8; 32]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for text in [run.as_bytes(), manifest] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update(&(shards.len() as u64).to_le_bytes());
        for shard in shards {
            hasher.update(shard);
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn key(byte: u8) -> SigningKey {
        SigningKey::of(&[byte; 32]).unwrap()
    }

    #[test]
    fn a_signature_is_of_one_key_run_manifest_and_shards() {
        let shards = [[1; 32], [2; 32]];
        let signed = key(b'a').sign("r", b"manifest", &shards);
        assert_eq!(key(b'a').verify("r", b"manifest", &signed).unwrap(), shards);
        for (other, run, manifest) in [
            (key(b'b'), "r", &b"manifest"[..]),
            (key(b'a'), "s", b"manifest"),
            (key(b'a'), "r", b"manifesu"),
            (key(b'a'), "rm", b"anifest"),
        ] {
            let refused = other.verify(run, manifest, &signed).unwrap_err();
            assert!(refused.contains("is not by the key"), "{refused}");
        }
        let text = String::from_utf8(signed).unwrap();
        let swapped = text.replace("0101", "0102");
        assert!(
            key(b'a')
                .verify("r", b"manifest", swapped.as_bytes())
                .is_err()
        );
        assert!(key(b'a').verify("r", b"manifest", b"").is_err());
        let newer = text.replace("\"format\": 1", "\"format\": 2");
        let refused = key(b'a').verify("r", b"manifest", newer.as_bytes());
        assert!(refused.unwrap_err().contains("newer than 1"));
    }

    #[test]
    fn a_key_is_a_secret_of_its_owner_and_his_group_and_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, format!("{}\n", "x".repeat(32))).unwrap();
        let set_mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
        };
        let refused = || SigningKey::read(&path).unwrap_err().to_string();
        for open in [0o644, 0o660] {
            set_mode(open);
            assert!(refused().contains("chmod 600"), "{}", refused());
        }
        for closed in [0o440, 0o600] {
            set_mode(closed);
            SigningKey::read(&path).unwrap();
        }
        std::fs::write(&path, format!("{}\n", "x".repeat(31))).unwrap();
        assert!(refused().contains("31 bytes") && refused().contains("openssl rand"));
        std::fs::remove_file(&path).unwrap();
        assert!(
            refused().contains("cannot read the signing key"),
            "{}",
            refused()
        );
    }
}
