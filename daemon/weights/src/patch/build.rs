//! Patches of a version whose predecessor is still here.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use robust_shared::weights::Manifest;
use robust_transport::{Buffer, Transport, TransportError};

use super::chain::Kept;
use super::code::Encoder;
use super::hand_out::HandOut;
use super::index::{Index, WHOLE};
use crate::types::Link;

/// If none of so many chunks that changed has a patch shorter than itself, no other one will.
const TRIED: u32 = 8;

/// Patches are made for so long; the chunks after those come whole. Readers wait meanwhile, and whoever
/// watches them gives up pulls that stand still for ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A version, where it lies.
#[derive(Clone, Debug)]
pub struct Version {
    /// What it consists of.
    pub manifest: Arc<Manifest>,
    /// Its bytes, which stay as they are until the [`Patches`] made of it are stopped.
    pub buffer: Arc<Buffer>,
}

/// The patches that make one version of the one before it, made on a thread of their own.
///
/// Whoever publishes a version does not wait for them: readers do, and are told meanwhile that it is
/// alive. In memory they take what they are long, to a quarter of the version, and as much again while they
/// are made.
pub struct Patches {
    link: Link,
    /// What they make.
    makes: [u8; 32],
    stop: Arc<AtomicBool>,
    /// Closed when neither version is read any more.
    reads: Receiver<()>,
    /// Keeps what it has made until it is joined.
    thread: Option<JoinHandle<Option<HandOut>>>,
}

impl Patches {
    /// Part of a version's bytes that its patches may have; the chunks after those that fill it come
    /// whole.
    const MOST: f64 = 0.25;

    /// Bytes that the patches of a version of so many bytes may have, and those of all versions before it
    /// together.
    pub fn most(bytes: u64) -> u64 {
        (bytes as f64 * Self::MOST) as u64
    }

    /// Begins to make them. Both versions must have chunks at the same places; where they do not there
    /// is nothing to offer.
    pub fn begin(
        transport: &Transport,
        base: Version,
        next: Version,
    ) -> Result<Option<Self>, TransportError> {
        let (from, to) = (&base.manifest, &next.manifest);
        if (from.bytes, from.chunk_bytes) != (to.bytes, to.chunk_bytes) {
            return Ok(None);
        }
        let hand_out = HandOut::open(transport, to.chunk_xxh3.len())?;
        let link = Link {
            base: from.content_digest(),
            key: *hand_out.key(),
        };
        let makes = to.content_digest();
        let stop = Arc::new(AtomicBool::new(false));
        let (reading, reads) = channel();
        let thread = std::thread::Builder::new()
            .name("patches".to_owned())
            .spawn({
                let (stop, transport) = (Arc::clone(&stop), transport.clone());
                move || {
                    let mut patches = Vec::new();
                    let until = Some(Instant::now() + PATIENCE);
                    let index = encode((&base, &next), until, &stop, &mut patches);
                    drop(reading);
                    hand_out_all(&transport, index?, &patches, hand_out)
                }
            });
        let io = |source| TransportError::Io {
            doing: "starting a thread for patches",
            source,
        };
        Ok(Some(Self {
            link,
            makes,
            stop,
            reads,
            thread: Some(thread.map_err(io)?),
        }))
    }

    /// What readers need.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Returns when neither version is read any more, at the end of a chunk: their bytes may change. If all
    /// patches are made by then they stay for their readers, who else are refused.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Nothing is ever sent.
        let _ = self.reads.recv();
    }

    /// Stops, and answers with what was made, if it is all: it can be read for as long as it is kept. What
    /// is waited for, if anything, is the end of copying the patches to where others read them.
    pub fn finish(mut self) -> Option<Kept> {
        self.stop();
        let hand_out = self.thread.take()?.join().ok()??;
        Some(Kept {
            base: self.link.base,
            makes: self.makes,
            hand_out,
        })
    }
}

impl Drop for Patches {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Patches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patches")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// Lets others read them; none if that cannot be.
fn hand_out_all(
    transport: &Transport,
    index: Index,
    patches: &[u8],
    mut hand_out: HandOut,
) -> Option<HandOut> {
    let filled = hand_out.fill(transport, index, patches);
    if let Err(error) = filled {
        tracing::warn!(%error, "the version's patches cannot be handed out");
        return None;
    }
    Some(hand_out)
}

/// How many bytes patches have that make one version of another, and how many words of two bytes differ
/// in the chunks that have one; none where they cannot be made.
pub fn compare(base: &Version, next: &Version) -> Option<(u64, u64)> {
    let stop = AtomicBool::new(false);
    let index = encode((base, next), None, &stop, &mut Vec::new())?;
    Some((index.total(), index.changed))
}

/// Appends the patches that can be made until then; where they lie, unless it was stopped or no patch can
/// be made here.
fn encode(
    (base, next): (&Version, &Version),
    until: Option<Instant>,
    stop: &AtomicBool,
    patches: &mut Vec<u8>,
) -> Option<Index> {
    let manifest = &next.manifest;
    let most = Patches::most(manifest.bytes) as usize;
    let mut encoder = Encoder::new().ok()?;
    let (mut in_vain, mut full) = (0, false);
    let mut lengths = vec![0; manifest.chunk_xxh3.len()];
    let mut changed = 0;
    let digests = manifest.chunk_xxh3.iter().zip(&base.manifest.chunk_xxh3);
    for ((chunk, length), (new, old)) in (0..).zip(&mut lengths).zip(digests) {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let Some(range) = manifest.chunk_range(chunk).filter(|_| new != old) else {
            continue;
        };
        let late = until.is_some_and(|until| Instant::now() > until);
        *length = WHOLE;
        if full || late || (in_vain == TRIED && patches.is_empty()) {
            continue;
        }
        let range = range.start as usize..range.end as usize;
        let both = base.buffer.with_range(range.clone(), |old| {
            let new = |new: &[u8]| {
                let (patch, words) = encoder.encode(old, new)?;
                let fits = patches.len() + patch.len() <= most;
                if fits {
                    patches.extend(patch);
                }
                Some((fits, u32::try_from(patch.len()).ok()?, words))
            };
            next.buffer.with_range(range, new)
        });
        match both {
            // No room for the others either.
            Ok(Ok(Some((false, ..)))) => full = true,
            Ok(Ok(Some((true, patch, words)))) => {
                *length = patch;
                changed += words;
            }
            Ok(Ok(None)) => in_vain += 1,
            Ok(Err(error)) | Err(error) => {
                // On a device, or being written.
                tracing::debug!(%error, "no patches of this version");
                return None;
            }
        }
    }
    Some(Index { changed, lengths })
}
