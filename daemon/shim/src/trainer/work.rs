//! The memory and the files of a rank: its slots, its batches, the versions that it publishes.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use robust_ckpt::image::padded_header;
use robust_ckpt::slot::{Image, PAGE, Slot, Taken, Writing};
use robust_proto::manifest::canary_to_proto;
use robust_proto::v1::{ServedVersion, SnapshotReply, Train};
use robust_role::serve::as_served;
use robust_role::{Deed, Facts, Link};
use robust_shared::ids::{Generation, Step};
use robust_shared::job::Dtype;
use robust_shared::phase::Phase;
use robust_shared::weights::{Canary, TensorSpec};
use robust_transport::{Buffer, Transport};
use robust_weights::{Layout, Publisher};
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::mpsc::UnboundedSender;

use super::batch;
use super::given::Given;
use super::hands::Hands;
use super::layout::{bytes, place};
use super::words::{CanaryAnswer, CanaryPrompt, Place, Placed, Tensor};

/// What an image's metadata says of its layout, as `format`: a program's own tensors.
pub const FORMAT: &str = "robust-program-state";
/// Its version, as `version`.
const VERSION: u32 = 1;

/// A version is served now, or cannot be.
pub type Served = (u64, Result<ServedVersion, String>);

/// An exception on request that the program is to raise where it next asks something.
pub type Raised = Rc<Cell<Option<String>>>;

/// What stays the same for a rank's life.
pub struct Of {
    /// Its rank.
    pub rank: u32,
    /// The gang's fencing number.
    pub generation: u64,
    /// Length of the pieces of a version that are verified each by itself.
    pub chunk_bytes: u64,
    /// The numbers that versions travel as.
    pub wire: Dtype,
    /// See [`Layout::full_every`].
    pub full_every: u64,
    /// Folder of the snapshots.
    pub snapshots: PathBuf,
    /// What its program is given.
    pub given: Given,
    /// What published weights must prove.
    pub canary: Option<CanaryPrompt>,
}

/// The real hands of a rank.
pub struct Work {
    of: Of,
    /// Ranks of the gang.
    ranks: u32,
    link: Link,
    facts: Facts,
    transport: Transport,
    served: UnboundedSender<Served>,
    raised: Raised,
    slots: [Option<Slot>; 2],
    /// Where a program of another user writes a state that is copied to its slot then.
    desk: Option<Desk>,
    desks: u32,
    looked_at: Vec<Image>,
    writing: Option<Writing>,
    versions: Option<Versions>,
    /// How often there was another layout of versions: its files have names of their own, for the program
    /// keeps those of an earlier one mapped.
    layouts: u32,
}

/// A file for the tensors of one state, which stays for the next.
struct Desk {
    name: String,
    file: File,
    bytes: u64,
    /// Where in the image that begins which is being written, and how much of it there is.
    writing: (u64, u64),
}

/// Two versions in shared memory, and who serves them.
struct Versions {
    tensors: Vec<Placed>,
    files: [PathBuf; 2],
    publisher: Arc<Mutex<Publisher>>,
}

impl Work {
    /// Nothing was looked at or written yet. `raised` is an exception on request that the
    /// program has not heard of yet.
    pub fn new(
        of: Of,
        link: Link,
        facts: Facts,
        transport: Transport,
        served: UnboundedSender<Served>,
        raised: Raised,
    ) -> Self {
        Self {
            of,
            ranks: 1,
            link,
            facts,
            transport,
            served,
            raised,
            slots: [None, None],
            desk: None,
            desks: 0,
            looked_at: Vec::new(),
            writing: None,
            versions: None,
            layouts: 0,
        }
    }

    /// The gang is of so many ranks.
    #[must_use]
    pub fn among(self, ranks: u32) -> Self {
        Self { ranks, ..self }
    }

    fn slot_path(&self, step: u64) -> PathBuf {
        let name = format!("trainer-{}.slot{}", self.of.rank, step % 2);
        self.of.snapshots.join(name)
    }

    fn slot(&mut self, step: u64, bytes: u64) -> Result<&mut Slot, String> {
        let (path, at) = (self.slot_path(step), (step % 2) as usize);
        let slot = match self.slots[at].take() {
            Some(slot) if slot.capacity() >= bytes => slot,
            _ => Slot::open(&path, bytes).map_err(|e| e.to_string())?,
        };
        Ok(self.slots[at].insert(slot))
    }

    /// Where the program writes so many bytes of the image, which begin there in it.
    fn desk(&mut self, writing: (u64, u64)) -> Result<PathBuf, String> {
        let failed = |error: io::Error| format!("memory for the program's state: {error}");
        let bytes = writing.1.max(1).next_multiple_of(PAGE as u64);
        let mut desk = match self.desk.take() {
            Some(desk) if desk.bytes == bytes => desk,
            before => {
                if let Some(before) = before {
                    self.of.given.remove(&before.name).map_err(failed)?;
                }
                // The program keeps an earlier one mapped: the names differ.
                self.desks += 1;
                let name = format!("state-{}", self.desks);
                let file = self.of.given.make(&name).map_err(failed)?;
                let all = fallocate(&file, FallocateFlags::empty(), 0, bytes);
                all.map_err(|errno| failed(errno.into()))?;
                Desk {
                    name,
                    file,
                    bytes,
                    writing,
                }
            }
        };
        desk.writing = writing;
        let path = self.of.given.path(&desk.name);
        self.desk = Some(desk);
        Ok(path)
    }

    fn header(&self, tensors: &[Placed]) -> Vec<u8> {
        let metadata = [
            ("format", FORMAT.to_owned()),
            ("version", VERSION.to_string()),
            ("rank", self.of.rank.to_string()),
            ("ranks", self.ranks.to_string()),
        ];
        padded_header(
            &metadata,
            tensors.iter().map(|t| {
                let bytes = t.start as usize..t.end as usize;
                (t.name.as_str(), t.dtype.as_str(), t.shape.as_slice(), bytes)
            }),
        )
    }

    /// The two files, made anew when the layout is another one.
    fn versions(&mut self, tensors: Vec<Placed>) -> Result<&mut Versions, String> {
        let versions = match self.versions.take() {
            Some(versions) if versions.tensors == tensors => versions,
            _ => self.make_versions(tensors)?,
        };
        Ok(self.versions.insert(versions))
    }

    fn make_versions(&mut self, tensors: Vec<Placed>) -> Result<Versions, String> {
        let length = usize::try_from(bytes(&tensors)).map_err(|e| e.to_string())?;
        self.layouts += 1;
        let of = self.layouts;
        let names = [0, 1].map(|at| format!("version-{of}-{at}"));
        let room = |name| room(&self.of.given, name, length);
        let buffers = [room(&names[0])?, room(&names[1])?];
        let files = names.map(|name| self.of.given.path(&name));
        let spec = |t: &Placed| TensorSpec {
            name: t.name.clone(),
            dtype: t.dtype.clone(),
            shape: t.shape.clone(),
            offset: t.start,
            bytes: t.end - t.start,
        };
        let layout = Layout {
            bytes: length,
            tensors: tensors.iter().map(spec).collect(),
            chunk_bytes: self.of.chunk_bytes,
            ranks: self.ranks as usize,
            full_every: self.of.full_every,
        };
        let publisher = Publisher::over(&self.transport, layout, buffers);
        Ok(Versions {
            tensors,
            files,
            publisher: Arc::new(Mutex::new(publisher)),
        })
    }

    /// What the version answers to the prompt, with the prompt.
    fn canary(&self, answer: Option<CanaryAnswer>) -> Option<Canary> {
        let (prompt, answer) = (self.of.canary.as_ref()?, answer?);
        Some(Canary {
            prompt_ids: prompt.prompt_ids.clone(),
            ids: answer.ids,
            logprobs: answer.logprobs,
            margins: answer.margins,
        })
    }
}

impl Hands for Work {
    fn look_at(&mut self, shards: &[SnapshotReply]) -> Result<Vec<Place>, String> {
        self.looked_at.clear();
        let mut places = Vec::with_capacity(shards.len());
        self.of.given.is_taken_up();
        for shard in shards {
            let (image, mut place) = look_at(shard)?;
            let seen = self.of.given.show(&place.path);
            place.path = seen.map_err(|error| {
                let path = place.path.display();
                format!("giving {path} to the program's user: {error}")
            })?;
            self.looked_at.push(image);
            places.push(place);
        }
        Ok(places)
    }

    fn is_unchanged(&mut self) -> Result<(), String> {
        self.of.given.is_taken_up();
        let looked_at = std::mem::take(&mut self.looked_at);
        let mut all = looked_at.into_iter();
        all.try_for_each(|image| image.check_unchanged().map_err(|e| e.to_string()))
    }

    fn lay_batch(&mut self, train: &Train) -> Result<PathBuf, String> {
        let name = format!("batch-{}.safetensors", train.step % 2);
        let path = self.of.given.path(&name);
        let failed = |error: String| format!("writing the batch to {}: {error}", path.display());
        // A new file each time: the program may have the last one's in its memory.
        self.of
            .given
            .remove(&name)
            .map_err(|e| failed(e.to_string()))?;
        batch::write(&train.samples, &path).map_err(|e| failed(e.to_string()))?;
        let given = self.of.given.hand_over(&name);
        given.map_err(|e| failed(e.to_string()))?;
        Ok(path)
    }

    fn begin_state(&mut self, step: u64, tensors: &[Tensor]) -> Result<Place, String> {
        let tensors = place(tensors).map_err(|e| e.to_string())?;
        let header = self.header(&tensors);
        let length = header.len() as u64 + bytes(&tensors);
        let of = (Step(step), Generation(self.of.generation));
        let slot = self.slot(step, length)?;
        let writing = slot.begin(of, length).map_err(|e| e.to_string())?;
        slot.put_first(&header);
        self.writing = Some(writing);
        let first = header.len() as u64;
        let (path, data) = match self.of.given.are_copied() {
            true => (self.desk((first, bytes(&tensors)))?, 0),
            false => (self.slot_path(step), PAGE as u64 + first),
        };
        Ok(Place {
            path,
            data,
            tensors,
        })
    }

    fn end_state(&mut self, step: u64) -> Result<SnapshotReply, String> {
        let writing = self.writing.take().ok_or("nothing was being written")?;
        let path = self.slot_path(step);
        let slot = self.slots[(step % 2) as usize].as_mut();
        let slot = slot.ok_or("its slot is closed")?;
        if let Some(desk) = &self.desk {
            let (at, bytes) = desk.writing;
            let copied = slot.put_from(at, &desk.file, bytes);
            copied.map_err(|error| format!("what the program wrote of its state: {error}"))?;
        }
        let taken = slot.finish(writing, step);
        Ok(SnapshotReply {
            step,
            path: path.to_string_lossy().into_owned(),
            bytes: taken.bytes,
            // Hashed by whoever reads it in the background.
            xxh3: None,
            generation: self.of.generation,
            // An optimiser's steps are among the program's own tensors.
            adam_step: Some(step),
            blake3: None,
        })
    }

    fn begin_version(&mut self, version: u64, tensors: &[Tensor]) -> Result<Place, String> {
        if let Some(other) = tensors.iter().find(|t| t.dtype != "F32") {
            return Err(format!(
                "weights are published as float32, and `{}` is {}; publish it as float32",
                other.name, other.dtype
            ));
        }
        // As rollouts expect them, whatever the order in which the program has them.
        let mut sorted = tensors.to_vec();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        if self.of.wire == Dtype::Bfloat16 {
            // The program rounds as it writes: it is told where each tensor lies, and as what.
            sorted.iter_mut().for_each(|t| t.dtype = "BF16".to_owned());
        }
        let tensors = place(&sorted).map_err(|e| e.to_string())?;
        let versions = self.versions(tensors)?;
        let mut publisher = versions
            .publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        publisher.make_room(version);
        Ok(Place {
            path: versions.files[(version % 2) as usize].clone(),
            data: 0,
            tensors: versions.tensors.clone(),
        })
    }

    fn end_version(&mut self, version: u64, canary: Option<CanaryAnswer>) -> Result<(), String> {
        let canary = self.canary(canary);
        let versions = self.versions.as_ref().ok_or("no version was begun")?;
        let publisher = Arc::clone(&versions.publisher);
        let (served, facts) = (self.served.clone(), self.facts.clone());
        let corrupt = |deed| deed == Deed::CorruptWeights;
        let damage = self.link.take_fault(Phase::Publish, corrupt).is_some();
        let publish = move || {
            let mut publisher = publisher.lock().unwrap_or_else(PoisonError::into_inner);
            let published = publisher.publish(version, |_| Ok(()));
            if damage {
                publisher.damage(version);
            }
            let published = published.map_err(|error| format!("publish: {error}"));
            let published = published.map(|published| {
                let mut published = as_served(&published);
                published.canary = canary.as_ref().map(canary_to_proto);
                facts.set_served(published.clone());
                published
            });
            // Nobody listens only when this process is ending.
            let _ = served.send((version, published));
        };
        // Every byte is hashed, and the program goes on meanwhile.
        let spawned = std::thread::Builder::new().name("publish".to_owned());
        spawned.spawn(publish).map(drop).map_err(|e| e.to_string())
    }

    fn exception(&mut self) -> Option<String> {
        self.raised.take()
    }

    fn spoils(&mut self) -> bool {
        let nan = self
            .link
            .take_fault(Phase::Update, |deed| deed == Deed::Nan);
        nan.is_some()
    }

    fn is_at(&mut self, step: Option<u64>) {
        self.facts.set_step(step);
    }
}

/// A rank's part of a state, as it was recorded.
fn look_at(shard: &SnapshotReply) -> Result<(Image, Place), String> {
    let taken = Taken {
        step: Step(shard.step),
        generation: Generation(shard.generation),
        bytes: shard.bytes,
    };
    let path = PathBuf::from(&shard.path);
    let image = Image::open(&path, taken).map_err(|e| e.to_string())?;
    if let Some(expected) = shard.xxh3 {
        let found = image.digest().map_err(|e| e.to_string())?;
        if found != expected {
            return Err(format!(
                "{} is corrupt: xxh3 is {found:016x}, recorded was {expected:016x}",
                path.display()
            ));
        }
    }
    let header = image.header().map_err(|e| e.to_string())?;
    let metadata = header.tensors.metadata().clone().unwrap_or_default();
    if metadata.get("format").map(String::as_str) != Some(FORMAT) {
        return Err(format!(
            "{} was not written by a program of [trainer.command]: its format is {:?}",
            path.display(),
            metadata.get("format").map_or("", String::as_str)
        ));
    }
    let first = if image.seal().is_some() {
        PAGE as u64
    } else {
        0
    };
    let mut tensors: Vec<Placed> = header
        .tensors
        .tensors()
        .into_iter()
        .map(|(name, info)| Placed {
            name,
            dtype: format!("{:?}", info.dtype),
            shape: info.shape.iter().map(|size| *size as u64).collect(),
            start: info.data_offsets.0 as u64,
            end: info.data_offsets.1 as u64,
        })
        .collect();
    tensors.sort_by_key(|tensor| tensor.start);
    let place = Place {
        path,
        data: first + header.data,
        tensors,
    };
    Ok((image, place))
}

/// Memory for a version, in a file that the program can map. A program that cuts it short ends this process alone,
/// which is its rank.
fn room(given: &Given, name: &str, bytes: usize) -> Result<Arc<Buffer>, String> {
    let path = given.path(name);
    let failed = |what: String| format!("memory for weights in {}: {what}", path.display());
    let file = given.make(name);
    let file = file.map_err(|error| failed(error.to_string()))?;
    Buffer::in_file(&file, 0, bytes).map_err(|error| failed(error.to_string()))
}
