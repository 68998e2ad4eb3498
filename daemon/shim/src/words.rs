//! Words on whose the slot is, and the way from who says them to who obeys them.

use tokio::sync::{mpsc, oneshot};

/// A word on whose the slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The engine is up.
    Up,
    /// The rank's.
    Lend,
    /// The engine's own.
    TakeBack,
    /// A client had the engine give its memory back and take it again.
    Renew,
}

pub(crate) struct Order {
    pub word: Word,
    pub done: oneshot::Sender<()>,
}

/// Gives the words, one after the other, to whoever obeys them; clones give them to the same.
#[derive(Debug, Clone)]
pub struct Words(mpsc::UnboundedSender<Order>);

/// Where words arrive.
pub struct Heard(pub(crate) mpsc::UnboundedReceiver<Order>);

/// Words and where they arrive.
pub fn words() -> (Words, Heard) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Words(sender), Heard(receiver))
}

impl Words {
    /// The engine is up; nobody waits for what follows from that.
    pub fn up(&self) {
        drop(self.say(Word::Up));
    }

    /// The engine's memory is back, and what its weights are nobody knows: they are loaded and verified anew.
    pub fn renew(&self) {
        drop(self.say(Word::Renew));
    }

    /// Returns when the rank has the slot. Never, if the engine does not give it: its end is the answer.
    pub async fn lend(&self) {
        self.obeyed(Word::Lend).await;
    }

    /// Returns when the engine serves again. Never, if it does not.
    pub async fn take_back(&self) {
        self.obeyed(Word::TakeBack).await;
    }

    async fn obeyed(&self, word: Word) {
        if self.say(word).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn say(&self, word: Word) -> oneshot::Receiver<()> {
        let (done, obeyed) = oneshot::channel();
        // Nobody listens only when the process is ending; then nobody is to be answered.
        let _ = self.0.send(Order { word, done });
        obeyed
    }
}
