//! Every operation of an upload and of a fetch fails once, in a store in memory.
#![allow(clippy::unwrap_used)]
mod support;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use robust_ckpt::Retention;
use robust_remote::{Local, Remote};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use support::{LARGE, SMALL, checkpoint, content, put, steps};

/// Fails one operation: the one at which the counter reaches zero.
#[derive(Clone, Debug)]
struct Faulty {
    store: Arc<InMemory>,
    left: Arc<AtomicI64>,
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty")
    }
}

fn fail() -> Error {
    let source = "the wire was cut".into();
    Error::Generic {
        store: "faulty",
        source,
    }
}

impl Faulty {
    fn step(&self) -> Result<()> {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1 => Err(fail()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Upload(Faulty, Box<dyn MultipartUpload>);

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.0.step() {
            Ok(()) => self.1.put_part(data),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.0.step()?;
        self.1.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.1.abort().await
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Key, data: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.step()?;
        self.store.put_opts(at, data, opts).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Key,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.step()?;
        let upload = self.store.put_multipart_opts(at, opts).await?;
        Ok(Box::new(Upload(self.clone(), upload)))
    }

    async fn get_opts(&self, at: &Key, options: GetOptions) -> Result<GetResult> {
        self.step()?;
        self.store.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        let me = self.clone();
        let keys = keys.map(move |key| me.step().and(key));
        self.store.delete_stream(keys.boxed())
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.step() {
            Ok(()) => self.store.list(prefix),
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.step()?;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.step()?;
        self.store.copy_opts(from, to, options).await
    }
}

struct Bench {
    faulty: Faulty,
    remote: Remote,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let faulty = Faulty {
            store: Arc::default(),
            left: Arc::default(),
        };
        let remote = Remote::over(Arc::new(faulty.clone()), Key::from("here"), "faulty://here");
        let dir = tempfile::tempdir().unwrap();
        Self {
            faulty,
            remote,
            dir,
        }
    }

    fn fail_at(&self, n: i64) {
        self.faulty.left.store(n, Ordering::SeqCst);
    }

    /// Nothing fails from now on; whether the fault came.
    fn mend(&self) -> bool {
        self.faulty.left.swap(0, Ordering::SeqCst) <= 0
    }
}

#[tokio::test]
async fn wherever_an_upload_fails_no_checkpoint_is_there_that_is_not_whole() {
    let bench = Bench::new();
    let dir = checkpoint(bench.dir.path(), 1, 7, LARGE);
    let mut points = 0;
    for n in 1.. {
        bench.fail_at(n);
        let local = Local::open(&dir).unwrap();
        let uploaded = bench.remote.upload("r", local, &mut |_| ()).await;
        let failed = bench.mend();
        assert_eq!(uploaded.is_err(), failed, "operation {n}: {uploaded:?}");
        let listed = bench.remote.list("r").await.unwrap();
        for kept in &listed {
            bench.remote.verify(kept, &mut |_| ()).await.unwrap();
        }
        if !failed {
            assert_eq!(steps(&listed), [(1, 7)]);
            break;
        }
        assert_eq!(listed, [], "operation {n}");
        points += 1;
    }
    // The look, two shards of three parts with begin and end, the manifest.
    assert_eq!(points, 1 + 2 * 5 + 1);
}

#[tokio::test]
async fn wherever_a_fetch_fails_nothing_is_left_here() {
    let bench = Bench::new();
    put(
        &bench.remote,
        "r",
        &checkpoint(bench.dir.path(), 1, 7, SMALL),
    )
    .await;
    let (to, mut points) = (bench.dir.path().join("back"), 0);
    for n in 1.. {
        bench.fail_at(n);
        let fetched = match bench.remote.list("r").await {
            Ok(kept) => bench
                .remote
                .fetch(&kept[0], &to, &mut |_| ())
                .await
                .map(drop),
            Err(error) => Err(error),
        };
        if !bench.mend() {
            fetched.unwrap();
            break;
        }
        assert!(
            fetched
                .unwrap_err()
                .to_string()
                .contains("the wire was cut")
        );
        assert!(!to.exists() || content(&to).is_empty(), "operation {n}");
        points += 1;
    }
    assert_eq!(points, 5, "list, manifest, two shards, manifest");
}

#[tokio::test]
async fn wherever_tidying_fails_what_is_left_verifies_and_the_next_one_finishes() {
    let keep = Retention {
        last: 1,
        every: 0,
        best: 0,
    };
    let bench = Bench::new();
    for n in 1.. {
        for step in [1, 2, 3] {
            put(
                &bench.remote,
                "r",
                &checkpoint(bench.dir.path(), 1, step, 10),
            )
            .await;
        }
        bench.fail_at(n);
        let tidied = bench.remote.tidy("r", &keep, &BTreeSet::new()).await;
        let failed = bench.mend();
        assert_eq!(tidied.is_err(), failed, "operation {n}");
        let listed = bench.remote.list("r").await.unwrap();
        assert!(steps(&listed).contains(&(1, 3)));
        for kept in &listed {
            bench.remote.verify(kept, &mut |_| ()).await.unwrap();
        }
        bench
            .remote
            .tidy("r", &keep, &BTreeSet::new())
            .await
            .unwrap();
        assert_eq!(steps(&bench.remote.list("r").await.unwrap()), [(1, 3)]);
        if !failed {
            assert!(n > 10, "{n}");
            break;
        }
    }
}
