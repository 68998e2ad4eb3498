//! The world as events: keys, mouse, time.
use super::event::Event;
use crossterm::event::{Event as Input, EventStream, KeyEventKind, MouseEventKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::Sender;
use tokio_stream::StreamExt as _;

const TICK: Duration = Duration::from_millis(250);

/// Keys, mouse and size of the terminal, until it is gone.
pub async fn inputs(to: Sender<Event>) {
    let mut inputs = EventStream::new();
    while let Some(Ok(input)) = inputs.next().await {
        let event = match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => Event::Key(key),
            // Mere movement happens all the time and means nothing.
            Input::Mouse(mouse) if mouse.kind != MouseEventKind::Moved => Event::Mouse(mouse),
            Input::Resize(..) => Event::Resize,
            _ => continue,
        };
        if to.send(event).await.is_err() {
            return;
        }
    }
    // Nobody can type any more: the terminal is gone.
    let _ = to.send(Event::Terminate).await;
}

/// A tick every quarter of a second.
pub async fn ticks(to: Sender<Event>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if to.send(Event::Tick).await.is_err() {
            return;
        }
    }
}

/// Unix time in ms.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
