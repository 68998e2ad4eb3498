//! What a daemon says of its job, one beside the others: each is watched by a task of its own.
use super::News;
use crate::contexts::Named;
use crate::error::CliError;
use crate::glance::Away;
use robust_proto::v1;
use tokio::sync::mpsc::Sender;

/// A look at many jobs need not be as quick as that at one.
const STATUS_EVERY_MS: u32 = 2_000;

/// Delivers statuses under this link number, then why there are no more.
pub async fn follow(named: Named, link: u64, to: Sender<News>) {
    let ended = match deliver(&named, link, &to).await {
        Ok(()) => "it ended the stream".to_owned(),
        Err(e) => Away::of(&e, None).why,
    };
    let news = News {
        context: named.name().to_owned(),
        link,
        told: Err(ended),
    };
    // Nobody listens any more when the console is being left.
    let _ = to.send(news).await;
}

async fn deliver(named: &Named, link: u64, to: &Sender<News>) -> Result<(), CliError> {
    let endpoint = named.endpoint().await?;
    let mut client = endpoint.connect().await?;
    let request = v1::WatchRequest {
        interval_ms: STATUS_EVERY_MS,
    };
    let mut statuses = endpoint.ask(client.watch(request)).await?;
    while let Some(status) = endpoint.next(&mut statuses).await? {
        let news = News {
            context: named.name().to_owned(),
            link,
            told: Ok(Box::new(status)),
        };
        if to.send(news).await.is_err() {
            break;
        }
    }
    Ok(())
}
