//! Which of a job's files a machine has.
use super::error::{Differs, FilesError};
use super::manifest::{Kind, Manifest, Needed};
use crate::digests::Digests;
use crate::state::StateDir;
use robust_ckpt::WeightFiles;
use robust_shared::job::Job;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What the tokenizer is called on every other machine than the one whose job file names it.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// Where this machine's job file has the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// `data.prompts`.
    pub prompts: Option<PathBuf>,
    /// `data.tokenizer`.
    pub tokenizer: Option<PathBuf>,
    /// `model.path`, or where this machine's warm start is cached.
    pub model: Option<PathBuf>,
    /// The model is a warm start, which every machine makes of its own, and not to the last bit like another's.
    pub made: bool,
}

impl Paths {
    /// Of a job whose paths are absolute.
    pub fn of(job: &Job) -> Self {
        let has_data = job.own_loop().is_none();
        Self {
            prompts: has_data.then(|| job.data.prompts.clone()),
            tokenizer: has_data.then(|| job.data.tokenizer.clone()),
            model: job.model.path.clone(),
            made: job.model.path.is_none(),
        }
    }

    /// Where it has a file; none where it names nothing of its kind.
    pub fn file(&self, needed: &Needed) -> Option<PathBuf> {
        match needed.kind {
            Kind::Prompts => self.prompts.clone(),
            Kind::Tokenizer if needed.name == TOKENIZER => self.tokenizer.clone(),
            Kind::Tokenizer => Some(self.tokenizer.as_ref()?.with_file_name(&needed.name)),
            Kind::Model => Some(self.model.as_ref()?.join(&needed.name)),
        }
    }

    /// Whether somebody named the files of a kind, and did not only leave them to be made.
    fn names(&self, kind: Kind) -> bool {
        kind != Kind::Model || !self.made
    }

    /// What is not there of that which the job file names, whatever it is: the key, and where it would be.
    pub fn missing(&self) -> Vec<(&'static str, PathBuf)> {
        let mut missing = Vec::new();
        for (kind, path) in [
            (Kind::Prompts, &self.prompts),
            (Kind::Tokenizer, &self.tokenizer),
        ] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
                missing.push((kind.key(), path.clone()));
            }
        }
        let model = self.model.as_ref().filter(|_| !self.made);
        if let Some(folder) = model {
            let weights = WeightFiles::find(folder).map(|weights| weights.files);
            let files = weights.unwrap_or_else(|_| vec![folder.clone()]).into_iter();
            let files = files.chain([folder.join("config.json")]);
            let gone = files.filter(|path| !path.is_file());
            missing.extend(gone.map(|path| (Kind::Model.key(), path)));
        }
        missing
    }
}

/// Where the files of a kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where the job file names them.
    Named,
    /// In the state directory.
    Copied,
    /// These are in neither.
    Lacking(Vec<Needed>),
}

/// What a machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Of each kind that the job has.
    pub places: BTreeMap<Kind, Place>,
    /// Other files stand where the job file names these.
    pub differs: Vec<Differs>,
}

/// Where the files of a job are on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Each of them.
    pub files: Vec<(Needed, PathBuf)>,
    /// As `data.prompts`.
    pub prompts: Option<PathBuf>,
    /// As `data.tokenizer`.
    pub tokenizer: Option<PathBuf>,
    /// As `model.path`.
    pub model: Option<PathBuf>,
}

impl Look {
    /// The files that the machine lacks.
    pub fn lacking(&self) -> Vec<Needed> {
        let lacking = self.places.values().flat_map(|place| match place {
            Place::Lacking(files) => files.clone(),
            Place::Named | Place::Copied => Vec::new(),
        });
        lacking.collect()
    }

    /// Where everything is, if nothing is lacking.
    pub fn located(&self, manifest: &Manifest, paths: &Paths, state: &StateDir) -> Option<Located> {
        let mut located = Located::default();
        for (kind, place) in &self.places {
            let at = match place {
                Place::Named => paths.clone(),
                Place::Copied => copies(state),
                Place::Lacking(_) => return None,
            };
            for file in manifest.of(*kind) {
                located.files.push((file.clone(), at.file(file)?));
            }
            match kind {
                Kind::Prompts => located.prompts = at.prompts,
                Kind::Tokenizer => located.tokenizer = at.tokenizer,
                Kind::Model => located.model = at.model,
            }
        }
        let in_order = |file: &Needed| manifest.files.iter().position(|other| other == file);
        located.files.sort_by_key(|(file, _)| in_order(file));
        Some(located)
    }
}

/// Where copies of a job's files are.
pub(super) fn copies(state: &StateDir) -> Paths {
    let folder = |kind: Kind| state.files().join(kind.folder());
    Paths {
        prompts: Some(folder(Kind::Prompts).join(PROMPTS)),
        tokenizer: Some(folder(Kind::Tokenizer).join(TOKENIZER)),
        model: Some(folder(Kind::Model)),
        made: false,
    }
}

/// What the prompts are called in a record.
pub(crate) const PROMPTS: &str = "prompts.jsonl";

/// Looks for the files of a job; reads those whose digests are not known.
pub(super) fn look(
    manifest: &Manifest,
    paths: &Paths,
    state: &StateDir,
    digests: &Digests,
) -> Result<Look, FilesError> {
    let mut look = Look::default();
    let copies = copies(state);
    for kind in Kind::ALL {
        if manifest.of(kind).next().is_none() {
            continue;
        }
        let mut all_named = true;
        for file in manifest.of(kind) {
            let path = paths.file(file);
            match path.map(|path| has(digests, &path, file)).transpose()? {
                Some(Has::Same) => {}
                Some(Has::Other(has, path)) if paths.names(kind) => {
                    all_named = false;
                    look.differs.push(Differs {
                        key: kind.key(),
                        path,
                        has,
                        wanted: file.blake3,
                    });
                }
                _ => all_named = false,
            }
        }
        let place = match all_named {
            true => Place::Named,
            false => copied(manifest, kind, &copies, digests)?,
        };
        look.places.insert(kind, place);
    }
    Ok(look)
}

fn copied(
    manifest: &Manifest,
    kind: Kind,
    copies: &Paths,
    digests: &Digests,
) -> Result<Place, FilesError> {
    let mut lacking = Vec::new();
    for file in manifest.of(kind) {
        let path = copies.file(file);
        let found = path.map(|path| has(digests, &path, file)).transpose()?;
        if !matches!(found, Some(Has::Same)) {
            lacking.push(file.clone());
        }
    }
    Ok(match lacking.is_empty() {
        true => Place::Copied,
        false => Place::Lacking(lacking),
    })
}

enum Has {
    Nothing,
    Same,
    Other(blake3::Hash, PathBuf),
}

fn has(digests: &Digests, path: &Path, wanted: &Needed) -> Result<Has, FilesError> {
    match digests.of(path) {
        Ok((blake3, _)) if blake3 == wanted.blake3 => Ok(Has::Same),
        Ok((blake3, _)) => Ok(Has::Other(blake3, path.to_owned())),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(Has::Nothing),
            _ => Err(FilesError::Local {
                path: path.to_owned(),
                source: error,
            }),
        },
    }
}
