//! A machine that has the files of a job, and others that get them.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::digests::Digests;
use crate::state::{StateDir, write_private};
use crate::store::Store;
use robust_grouplog::FileStore;
use robust_remote::Remote;
use robust_shared::job::Job;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The names that a record has, in its order.
const NAMES: [&str; 5] = [
    "config.json",
    "model.safetensors",
    "chat_template.jinja",
    "tokenizer.json",
    "prompts.jsonl",
];

struct Site {
    temp: TempDir,
}

impl Site {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self { temp }
    }

    fn machine(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn state(&self, name: &str) -> StateDir {
        StateDir::make(&self.machine(name).join("state")).unwrap()
    }

    fn store(&self) -> FileStore {
        let url = format!("file://{}/log", self.temp.path().display());
        FileStore::new(&Remote::open(&url).unwrap(), "job")
    }

    fn job(&self, name: &str) -> Job {
        let text =
            "[data]\nprompts = \"p.jsonl\"\ntokenizer = \"arith.json\"\n[model]\npath = \"m\"\n";
        let mut job = Job::parse(text, Path::new("j.toml")).unwrap();
        job.resolve(&self.machine(name));
        job
    }

    fn holder(&self, name: &str) -> Holder {
        Holder {
            state: self.state(name),
            paths: Paths::of(&self.job(name)),
            store: Some(self.store()),
        }
    }

    /// Lays the files of the job on a machine, at the paths of its job file.
    fn lay(&self, name: &str) {
        let at = self.machine(name);
        std::fs::create_dir_all(at.join("m")).unwrap();
        for (file, text) in [
            ("p.jsonl", "prompts"),
            ("arith.json", "tokenizer"),
            ("chat_template.jinja", "template"),
            ("m/config.json", "config"),
            ("m/model.safetensors", "weights"),
        ] {
            std::fs::write(at.join(file), text).unwrap();
        }
    }

    /// What the first leader, on this machine, records and knows.
    async fn lead(&self, name: &str) -> (Manifest, JobFiles) {
        self.lay(name);
        let state = self.state(name);
        let (store, _) = Store::open(state.root()).unwrap();
        let digests = Digests::new(state.digests());
        let job = self.job(name);
        let files = JobFiles::new(&job, digests).recorded(&job, &state, &store);
        files.list().await.unwrap();
        (Manifest::read(&state).unwrap().unwrap(), files)
    }

    /// The same, and everything is in the object store.
    async fn lead_and_put(&self, name: &str) -> Manifest {
        let (manifest, files) = self.lead(name).await;
        put_missing(files, self.store(), None, None).await;
        manifest
    }
}

/// Waits until a follower's standing is so.
async fn until(following: &mut Following, wanted: impl Fn(&Standing) -> bool) -> Standing {
    let waiting = async {
        loop {
            let standing = following.standing();
            if wanted(&standing) {
                return standing;
            }
            following.changed().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    waited.unwrap_or_else(|_| panic!("{:?}", following.standing()))
}

#[tokio::test]
async fn a_leader_records_what_its_job_is_made_of_and_tells_nodes_of_all_but_the_prompts() {
    let site = Site::new();
    let (manifest, files) = site.lead("a").await;
    let names: Vec<&str> = manifest.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, NAMES);
    assert_eq!(manifest.files[4].blake3, blake3::hash(b"prompts"));
    let told = files.list().await.unwrap();
    let told: Vec<&str> = told.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(told, NAMES[..4]);
    assert_eq!(files.path("prompts.jsonl"), None);
    assert!(
        files
            .path("tokenizer.json")
            .unwrap()
            .ends_with("arith.json")
    );
}

#[tokio::test]
async fn a_machine_without_any_of_the_files_gets_all_of_them_and_goes_on_from_its_copies() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    let holder = site.holder("b");
    let located = holder.locate(&manifest).await.unwrap();
    let copies = site.state("b").files();
    assert_eq!(located.prompts, Some(copies.join("prompts/prompts.jsonl")));
    assert_eq!(
        located.tokenizer,
        Some(copies.join("tokenizer/tokenizer.json"))
    );
    assert_eq!(located.model, Some(copies.join("model")));
    assert!(copies.join("tokenizer/chat_template.jinja").is_file());
    let weights = std::fs::read(copies.join("model/model.safetensors")).unwrap();
    assert_eq!(weights, b"weights");
    // It leads, and nodes are told the very same files.
    let files = JobFiles::located(&located, Digests::new(site.state("b").digests()));
    let told: Vec<String> = files
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|f| f.name)
        .collect();
    assert_eq!(told, NAMES[..4]);
    // The store is not asked again.
    std::fs::remove_dir_all(site.temp.path().join("log")).unwrap();
    assert_eq!(holder.locate(&manifest).await.unwrap(), located);
}

#[tokio::test]
async fn what_is_at_the_job_files_paths_is_not_copied() {
    let site = Site::new();
    let (manifest, _) = site.lead("a").await;
    site.lay("b");
    let located = site.holder("b").locate(&manifest).await.unwrap();
    assert_eq!(located.model, Some(site.machine("b").join("m")));
    assert!(!site.state("b").files().exists());
}

#[tokio::test]
async fn a_model_of_which_one_file_is_missing_is_copied_whole_and_the_rest_is_where_it_was() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    site.lay("b");
    std::fs::remove_file(site.machine("b").join("m/config.json")).unwrap();
    let located = site.holder("b").locate(&manifest).await.unwrap();
    assert_eq!(located.model, Some(site.state("b").files().join("model")));
    assert_eq!(located.prompts, Some(site.machine("b").join("p.jsonl")));
}

#[tokio::test]
async fn another_file_at_the_path_is_told_with_both_digests_and_moved_away_it_is_none() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    site.lay("b");
    let prompts = site.machine("b").join("p.jsonl");
    std::fs::write(&prompts, "others").unwrap();
    let error = site
        .holder("b")
        .locate(&manifest)
        .await
        .unwrap_err()
        .to_string();
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    for part in [
        prompts.display().to_string(),
        digest(b"others"),
        digest(b"prompts"),
        "data.prompts".to_owned(),
        "move it away".to_owned(),
    ] {
        assert!(error.contains(&part), "{part}: {error}");
    }
    std::fs::remove_file(&prompts).unwrap();
    site.holder("b").locate(&manifest).await.unwrap();
}

#[tokio::test]
async fn a_warm_start_that_a_machine_made_of_its_own_gives_way_to_the_jobs() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    site.lay("b");
    std::fs::write(site.machine("b").join("m/model.safetensors"), "almost").unwrap();
    let mut holder = site.holder("b");
    assert!(holder.locate(&manifest).await.is_err());
    holder.paths.made = true;
    let located = holder.locate(&manifest).await.unwrap();
    assert_eq!(located.model, Some(site.state("b").files().join("model")));
}

#[tokio::test]
async fn copies_of_an_earlier_job_and_half_copies_are_not_taken_for_the_jobs() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    let model = site.state("b").files().join("model");
    std::fs::create_dir_all(&model).unwrap();
    for name in [
        "other.safetensors",
        "model.safetensors",
        ".config.json.part",
    ] {
        std::fs::write(model.join(name), "of another job").unwrap();
    }
    site.holder("b").locate(&manifest).await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&model)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors"]);
    assert_eq!(
        std::fs::read(model.join("model.safetensors")).unwrap(),
        b"weights"
    );
}

#[tokio::test]
async fn a_file_that_is_nowhere_is_told_with_where_it_was_looked_for() {
    let site = Site::new();
    let (manifest, files) = site.lead("a").await;
    // Larger than what is put beside the log.
    put_missing(files, site.store(), Some(7), None).await;
    let error = site
        .holder("b")
        .locate(&manifest)
        .await
        .unwrap_err()
        .to_string();
    let (name, key) = ("chat_template.jinja", "data.tokenizer");
    let template = blake3::hash(b"template").to_hex().to_string();
    for part in [name, key, "job/files", &template, "b/chat_template.jinja"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_follower_may_lead_once_it_has_all_that_the_log_names() {
    let site = Site::new();
    let state = site.state("b");
    let mut following = Following::start(site.holder("b"));
    // Nothing is recorded, and nothing is there.
    let standing = until(&mut following, |s| s.lacks > 0).await;
    assert!(standing.why.contains("p.jsonl") && standing.why.contains("data.prompts"));
    let (manifest, files) = site.lead("a").await;
    let record = std::fs::read(site.state("a").files_json()).unwrap();
    write_private(&state.files_json(), &record).unwrap();
    // It is recorded, and not in the store yet.
    let standing = until(&mut following, |s| {
        s.why.contains("not in the object store")
    })
    .await;
    assert_eq!((standing.lacks, standing.bytes), (5, manifest.bytes()));
    assert_eq!(standing.lacking_bytes, manifest.bytes());
    put_missing(files, site.store(), None, None).await;
    let standing = until(&mut following, Standing::has_all).await;
    assert_eq!((standing.lacks, standing.lacking_bytes), (0, 0));
    // And not when it has them no more.
    std::fs::remove_dir_all(site.temp.path().join("log")).unwrap();
    std::fs::remove_dir_all(state.files()).unwrap();
    until(&mut following, |s| s.lacks == 5).await;
}

#[tokio::test]
async fn before_anything_is_recorded_it_may_lead_with_what_its_job_file_names() {
    let site = Site::new();
    site.lay("b");
    let mut following = Following::start(site.holder("b"));
    until(&mut following, Standing::has_all).await;
    std::fs::remove_file(site.machine("b").join("m/model.safetensors")).unwrap();
    let standing = until(&mut following, |s| !s.has_all()).await;
    assert!(standing.why.contains("model.path"), "{}", standing.why);
}

#[tokio::test]
async fn a_leader_whose_file_was_changed_after_the_job_began_says_which() {
    let site = Site::new();
    let manifest = site.lead_and_put("a").await;
    let located = site.holder("a").locate(&manifest).await.unwrap();
    std::fs::write(site.machine("a").join("m/model.safetensors"), "others").unwrap();
    let files = JobFiles::located(&located, Digests::new(site.state("a").digests()));
    let error = files.list().await.unwrap_err().to_string();
    assert!(error.contains("model.safetensors"), "{error}");
    assert!(error.contains(blake3::hash(b"weights").to_hex().as_str()));
}

#[test]
fn a_record_that_leads_out_of_the_folder_is_refused() {
    let site = Site::new();
    let state = site.state("a");
    for name in ["../x", "/etc/x", "", "..", "a/b"] {
        let files = vec![Needed {
            kind: Kind::Model,
            name: name.to_owned(),
            bytes: 1,
            blake3: blake3::hash(b"x"),
        }];
        Manifest { files }.write(&state).unwrap();
        let error = Manifest::read(&state).unwrap_err().to_string();
        assert!(error.contains("no name of a file"), "{name}: {error}");
    }
}

#[test]
fn bytes_are_said_with_few_digits() {
    for (bytes, said) in [
        (0, "0 B"),
        (999, "999 B"),
        (1_234, "1.2 KB"),
        (999_999, "1.0 MB"),
        (3_000_000_000, "3.0 GB"),
    ] {
        assert_eq!(size(bytes), said);
    }
}
