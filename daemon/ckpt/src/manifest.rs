//! `manifest.json`: what a checkpoint consists of.
use crate::disk::Disk;
use crate::{Checkpoint, CkptError, Shard, files};
use robust_shared::ids::{Generation, Step, TrajectoryId};
use robust_shared::time::Time;
use robust_shared::weights::TensorSpec;
use serde::{Deserialize, Serialize};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The file's name; a folder without it is no checkpoint.
pub const FILE: &str = "manifest.json";
/// The format written by this build; a higher one is refused. 2: images have what varies from step to
/// step no more, it is here.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct File {
    /// XXH3-64, hex, of the body as compact JSON: a flipped bit must not pass for another step.
    xxh3: String,
    body: Body,
}

#[derive(Serialize, Deserialize)]
struct Body {
    format: u32,
    step: Step,
    generation: Generation,
    ranks: u32,
    shards: Vec<Entry>,
    consumed: Vec<TrajectoryId>,
    // Absent in manifests of earlier builds; what is absent is not part of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reward: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adam_step: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tensors: Vec<TensorSpec>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    rank: u32,
    file: String,
    bytes: u64,
    xxh3: String,
}

/// The file name of a rank's shard.
pub fn shard_file(rank: u32) -> String {
    format!("rank-{rank}.safetensors")
}

/// Writes the manifest of a checkpoint whose shards are all in its folder under their names
/// ([`shard_file`]), durably and all at once.
pub fn store(disk: &dyn Disk, checkpoint: &Checkpoint) -> Result<(), CkptError> {
    let dir = &checkpoint.dir;
    let path = dir.join(FILE);
    let text = encode(checkpoint).map_err(|e| CkptError::io("encode", &path)(e.into()))?;
    files::replace(disk, &path, &text)?;
    files::sync_dir(disk, dir)
}

/// The manifest's text, of a checkpoint whose shards have their names ([`shard_file`]).
pub fn encode(checkpoint: &Checkpoint) -> Result<Vec<u8>, serde_json::Error> {
    let entry = |s: &Shard| Entry {
        rank: s.rank,
        file: shard_file(s.rank),
        bytes: s.bytes,
        xxh3: format!("{:016x}", s.xxh3),
    };
    let body = Body {
        format: FORMAT,
        step: checkpoint.step,
        generation: checkpoint.generation,
        ranks: u32::try_from(checkpoint.shards.len()).unwrap_or(u32::MAX),
        shards: checkpoint.shards.iter().map(entry).collect(),
        consumed: checkpoint.consumed.clone(),
        // JSON has no other numbers.
        reward: checkpoint.reward.filter(|reward| reward.is_finite()),
        at_us: checkpoint.at.map(|at| at.0),
        adam_step: checkpoint.adam_step,
        tensors: checkpoint.tensors.clone(),
    };
    let xxh3 = digest(&body)?;
    serde_json::to_vec_pretty(&File { xxh3, body })
}

/// Whether a later build wrote it, which this one must not judge.
pub fn is_newer(dir: &Path) -> bool {
    #[derive(Deserialize)]
    struct Header {
        body: Format,
    }
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let text = std::fs::read(dir.join(FILE)).unwrap_or_default();
    serde_json::from_slice::<Header>(&text).is_ok_and(|header| header.body.format > FORMAT)
}

/// Reads a manifest; the error is a sentence. None when there is none.
pub fn load(dir: &Path) -> Result<Option<Checkpoint>, String> {
    match std::fs::read(dir.join(FILE)) {
        Ok(text) => parse(&text, dir).map(Some),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("its manifest cannot be read: {e}")),
    }
}

/// What a manifest says, of a checkpoint in that folder; the error is a sentence.
pub fn parse(text: &[u8], dir: &Path) -> Result<Checkpoint, String> {
    let unreadable = |e: serde_json::Error| format!("its manifest cannot be read: {e}");
    let File { xxh3, body } = serde_json::from_slice(text).map_err(unreadable)?;
    if body.format > FORMAT {
        return Err(format!("its format {} is newer than {FORMAT}", body.format));
    }
    // A fuzz target would not get past it, and whoever writes a manifest on purpose writes its digest.
    if digest(&body).map_err(unreadable)? != xxh3 && !cfg!(fuzzing) {
        return Err("its manifest does not match its own digest".to_owned());
    }
    let shard = |entry: Entry| {
        let xxh3 = u64::from_str_radix(&entry.xxh3, 16).map_err(|e| e.to_string())?;
        // A manifest may come from a bucket: it names its own shards, and no file besides.
        let name = shard_file(entry.rank);
        if entry.file != name {
            let Entry { rank, file, .. } = entry;
            return Err(format!(
                "its manifest names the file {file:?} for rank {rank}, which has to be {name:?}"
            ));
        }
        Ok(Shard {
            rank: entry.rank,
            path: dir.join(name),
            bytes: entry.bytes,
            xxh3,
        })
    };
    Ok(Checkpoint {
        step: body.step,
        generation: body.generation,
        dir: dir.to_owned(),
        shards: body
            .shards
            .into_iter()
            .map(shard)
            .collect::<Result<_, String>>()?,
        consumed: body.consumed,
        reward: body.reward,
        at: body.at_us.map(Time),
        adam_step: body.adam_step,
        tensors: body.tensors,
    })
}

fn digest(body: &Body) -> Result<String, serde_json::Error> {
    Ok(format!("{:016x}", xxh3_64(&serde_json::to_vec(body)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::RealDisk;
    use proptest::prelude::*;

    /// What is read of a manifest that was written with this reward.
    fn read_again(reward: f64) -> Option<f64> {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint {
            step: Step(3),
            generation: Generation(1),
            dir: dir.path().to_owned(),
            shards: Vec::new(),
            consumed: Vec::new(),
            reward: Some(reward),
            at: Some(Time(1)),
            adam_step: Some(3),
            tensors: Vec::new(),
        };
        store(&RealDisk, &checkpoint).unwrap();
        load(dir.path()).unwrap().unwrap().reward
    }

    #[test]
    fn the_mean_of_any_batch_is_read_as_it_was_written() {
        for samples in [7, 48, 56, 100] {
            for right in 0..=samples {
                let mean = f64::from(right) / f64::from(samples);
                assert_eq!(read_again(mean), Some(mean));
            }
        }
        assert_eq!(read_again(f64::NAN), None);
        assert_eq!(read_again(f64::INFINITY), None);
    }

    /// A manifest whose one shard is this file, with the digest that belongs to it.
    fn naming(rank: u32, file: &str) -> Vec<u8> {
        let body = Body {
            format: FORMAT,
            step: Step(3),
            generation: Generation(1),
            ranks: 1,
            shards: vec![Entry {
                rank,
                file: file.to_owned(),
                bytes: 1,
                xxh3: "0".to_owned(),
            }],
            consumed: Vec::new(),
            reward: None,
            at_us: None,
            adam_step: None,
            tensors: Vec::new(),
        };
        let xxh3 = digest(&body).unwrap();
        serde_json::to_vec(&File { xxh3, body }).unwrap()
    }

    #[test]
    fn a_manifest_names_its_own_shards_and_no_file_elsewhere() {
        let dir = Path::new("/ckpt/step-3");
        let found = parse(&naming(0, "rank-0.safetensors"), dir).unwrap();
        assert_eq!(found.shards[0].path, dir.join("rank-0.safetensors"));
        for file in [
            "/etc/shadow",
            "../../db/data",
            "../step-2/rank-0.safetensors",
            "rank-1.safetensors",
            "",
        ] {
            let refusal = parse(&naming(0, file), dir).unwrap_err();
            let says = format!("names the file {file:?} for rank 0");
            assert!(refusal.contains(&says), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn any_reward_is_read_as_it_was_written(reward in any::<f64>()) {
            prop_assert_eq!(read_again(reward), Some(reward).filter(|r| r.is_finite()));
        }
    }
}
