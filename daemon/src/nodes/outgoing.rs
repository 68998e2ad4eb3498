//! A shard on its way to another node, in either direction.
use crate::files::PART_BYTES;
use robust_ckpt::slot::{Image, Taken};
use robust_ckpt::{CkptError, slot};
use robust_proto::v1;
use robust_shared::ids::{Generation, Step};
use std::path::PathBuf;
use tokio::sync::mpsc;
use tonic::Status;
use xxhash_rust::xxh3::Xxh3;

/// Parts read ahead of the network.
const AHEAD: usize = 4;

/// What lies where a message says.
pub fn taken(step: u64, generation: u64, bytes: u64) -> Taken {
    slot::Taken {
        step: Step(step),
        generation: Generation(generation),
        bytes,
    }
}

/// Both digests of a shard that somebody read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardDigests {
    /// XXH3-64, which is told: it finds damage.
    pub xxh3: u64,
    /// BLAKE3, which stays here: what comes back is known by it, whatever it claims to be.
    pub blake3: [u8; 32],
}

/// Hears of what was read.
type Note = Box<dyn FnOnce(ShardDigests) + Send>;

/// The image's parts, hashed on the way: the digest goes with the last one, and only if the image was
/// the same from the first byte to the last. An error is the stream's last item.
pub fn parts_of(
    path: PathBuf,
    taken: Taken,
    header: Option<v1::ShardHeader>,
) -> mpsc::Receiver<Result<v1::ShardPart, Status>> {
    send_parts(path, taken, header, None)
}

/// The same for a reader whose copy may come back. `note` hears of it before the last part is sent: the
/// reader may tell of it at once.
pub fn parts_noted(
    path: PathBuf,
    taken: Taken,
    note: impl FnOnce(ShardDigests) + Send + 'static,
) -> mpsc::Receiver<Result<v1::ShardPart, Status>> {
    send_parts(path, taken, None, Some(Box::new(note)))
}

fn send_parts(
    path: PathBuf,
    taken: Taken,
    header: Option<v1::ShardHeader>,
    note: Option<Note>,
) -> mpsc::Receiver<Result<v1::ShardPart, Status>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        // The receiver may have left.
        let send = |part| sender.blocking_send(part).is_ok();
        let image = match Image::open(&path, taken) {
            Ok(image) => image,
            Err(error) => {
                send(Err(failed(&error)));
                return;
            }
        };
        let (mut header, mut hash, mut at) = (header, Xxh3::new(), 0);
        let mut noted = note.map(|note| (blake3::Hasher::new(), note));
        loop {
            let part = next(&image, &mut at, &mut hash);
            let is_last = part.as_ref().map_or(true, |part| part.xxh3.is_some());
            if let (Ok(part), Some((named, _))) = (&part, &mut noted) {
                named.update(&part.data);
            }
            if let Ok(v1::ShardPart {
                xxh3: Some(xxh3), ..
            }) = part
                && let Some((named, note)) = noted.take()
            {
                let blake3 = *named.finalize().as_bytes();
                note(ShardDigests { xxh3, blake3 });
            }
            let part = part.map(|part| v1::ShardPart {
                header: header.take(),
                ..part
            });
            if !send(part.map_err(|error| failed(&error))) || is_last {
                return;
            }
        }
    });
    receiver
}

fn next(image: &Image, at: &mut u64, hash: &mut Xxh3) -> Result<v1::ShardPart, CkptError> {
    let left = usize::try_from(image.bytes() - *at).unwrap_or(usize::MAX);
    let mut data = vec![0; PART_BYTES.min(left)];
    *at += image.read_at(&mut data, *at)? as u64;
    hash.update(&data);
    let mut xxh3 = None;
    if *at == image.bytes() {
        image.check_unchanged()?;
        xxh3 = Some(hash.digest());
    }
    Ok(v1::ShardPart {
        header: None,
        data,
        xxh3,
    })
}

/// A shard that is not what it should be comes from elsewhere or not at all: asking again is no use.
fn failed(error: &CkptError) -> Status {
    match error {
        CkptError::Torn { .. } | CkptError::Bad { .. } => Status::data_loss(error.to_string()),
        _ => Status::not_found(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_ckpt::slot::{Slot, SnapshotMemory};
    use xxhash_rust::xxh3::xxh3_64;

    async fn all(
        mut parts: mpsc::Receiver<Result<v1::ShardPart, Status>>,
    ) -> Result<(Vec<u8>, Option<u64>), Status> {
        let (mut data, mut xxh3) = (Vec::new(), None);
        while let Some(part) = parts.recv().await {
            let part = part?;
            assert_eq!(xxh3, None, "the digest came before the last part");
            xxh3 = part.xxh3;
            data.extend(part.data);
        }
        Ok((data, xxh3))
    }

    #[tokio::test]
    async fn a_shard_goes_out_with_its_digest_or_not_at_all() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("slot");
        let image: Vec<u8> = (0..PART_BYTES + 5).map(|i| i as u8).collect();
        let mut slot = Slot::open(&path, image.len() as u64).unwrap();
        let part: &dyn SnapshotMemory = &image.as_slice();
        let taken = slot.write((Step(4), Generation(2)), 4, &[part]).unwrap();
        let got = all(parts_of(path.clone(), taken, None)).await.unwrap();
        assert_eq!(got, (image.clone(), Some(xxh3_64(&image))));
        let (sender, noted) = std::sync::mpsc::channel();
        let parts = parts_noted(path.clone(), taken, move |digests| {
            sender.send(digests).unwrap();
        });
        assert_eq!(all(parts).await.unwrap().0, image);
        let digests = ShardDigests {
            xxh3: xxh3_64(&image),
            blake3: *blake3::hash(&image).as_bytes(),
        };
        assert_eq!(noted.recv().unwrap(), digests);
        let older = Taken {
            step: Step(2),
            ..taken
        };
        let error = all(parts_of(path.clone(), older, None)).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::DataLoss);
        let missing = parts_of(temp.path().join("none"), taken, None);
        let error = all(missing).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::NotFound);
    }
}
