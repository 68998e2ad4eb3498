//! The leader puts the files of its job into the object store.
use super::served::JobFiles;
use super::size;
use robust_grouplog::{FileError, FileStore};
use robust_proto::v1;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// Between two tries, and between two looks while somebody lacks something.
const RETRY: Duration = Duration::from_secs(5);

/// Puts what is not there, up to `most` bytes a file, and does so again when a controller that follows lacks something: an
/// object may have been lost or damaged. For as long as it leads; without others, until all is there.
pub async fn put_missing(
    files: JobFiles,
    store: FileStore,
    most: Option<u64>,
    controllers: Option<watch::Receiver<v1::Controllers>>,
) {
    let mut said = String::new();
    loop {
        match once(&files, &store, most).await {
            Ok(()) => {
                said.clear();
                let Some(mut controllers) = controllers.clone() else {
                    return;
                };
                let lacks = |c: &v1::Controllers| c.followers.iter().any(|f| f.lacks_files > 0);
                if controllers.wait_for(lacks).await.is_err() {
                    return;
                }
            }
            Err(why) if why != said => {
                tracing::warn!("not all files of the job are in the object store yet: {why}");
                said = why;
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

async fn once(files: &JobFiles, store: &FileStore, most: Option<u64>) -> Result<(), String> {
    let all = files.needed().await.map_err(|e| e.to_string())?;
    let mut failed = None;
    for (file, path) in all {
        if most.is_some_and(|most| file.bytes > most) {
            continue;
        }
        let content = file.content();
        let put = match store.has(&content).await {
            Ok(true) => continue,
            Ok(false) => {
                let begun = Instant::now();
                let put = store.put(&content, &path).await;
                put.map(|()| begun.elapsed())
            }
            Err(error) => Err(FileError::Log(error)),
        };
        match put {
            Ok(took) => tracing::info!(
                "{} ({}) of the job's files was put into {} in {:.1} s",
                file.name,
                size(file.bytes),
                store.url(),
                took.as_secs_f64()
            ),
            // The others may be had nevertheless.
            Err(error) => failed = failed.or(Some(error.to_string())),
        }
    }
    failed.map_or(Ok(()), Err)
}
