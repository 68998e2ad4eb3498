//! The outside world as one stream of events. It only waits and hands over; [`super::Driver`]
//! decides nothing either, it asks the core.
use super::clock::Clock;
use super::event::{Event, StoreEvent, TimerEvent};
use crate::ckpt::CkptEvent;
use crate::launcher::LaunchEvent;
use crate::store::Condition;
use crate::telemetry;
use robust_shared::time::Time;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

/// Everything the driver listens to.
#[derive(Debug)]
pub struct World {
    /// From everybody who serves, and from what the driver itself began.
    pub events: UnboundedReceiver<Event>,
    /// From the launcher.
    pub launches: UnboundedReceiver<LaunchEvent>,
    /// From the telemetry.
    pub samples: UnboundedReceiver<telemetry::Samples>,
    /// From the checkpoint writer.
    pub checkpoints: UnboundedReceiver<CkptEvent>,
    /// How the database is.
    pub store: watch::Receiver<Condition>,
}

/// Longest the driver sleeps; the core's own timeouts are usually sooner.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl World {
    /// Waits for the next event. Exits come first: everything else may depend on who lives.
    pub async fn next(&mut self, clock: Clock, wake: Option<Time>, status_due: Instant) -> Event {
        let sleep = wake.map_or(LONGEST_SLEEP, |at| clock.until(at).min(LONGEST_SLEEP));
        tokio::select! {
            biased;
            Some(event) = self.launches.recv() => event.into(),
            Some(event) = self.events.recv() => event,
            () = tokio::time::sleep(sleep) => TimerEvent::Timeout.into(),
            () = tokio::time::sleep_until(status_due) => TimerEvent::StatusDue.into(),
            Some(samples) = self.samples.recv() => Event::Samples(Box::new(samples)),
            Some(event) = self.checkpoints.recv() => event.into(),
            Ok(()) = self.store.changed() => {
                StoreEvent::Condition(self.store.borrow_and_update().clone()).into()
            }
        }
    }

    /// Hands over an event, and what has arrived meanwhile, so many together at most. Nothing is taken out of a channel
    /// that is not handed over: who told of it may wait for the answer, and nobody tells of an exit twice.
    pub fn hand_over(&mut self, first: Event, most: usize, mut take: impl FnMut(Event)) {
        take(first);
        for _ in 1..most {
            match self.next_ready() {
                Some(event) => take(event),
                None => return,
            }
        }
    }

    /// What has arrived meanwhile, without waiting.
    fn next_ready(&mut self) -> Option<Event> {
        if let Ok(event) = self.launches.try_recv() {
            return Some(event.into());
        }
        if let Ok(event) = self.events.try_recv() {
            return Some(event);
        }
        if let Ok(samples) = self.samples.try_recv() {
            return Some(Event::Samples(Box::new(samples)));
        }
        self.checkpoints.try_recv().ok().map(Event::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::RouteEvent;
    use robust_shared::core::Exit;
    use robust_shared::ids::Incarnation;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    /// Those who tell it something.
    struct Told {
        say: UnboundedSender<Event>,
        launch: UnboundedSender<LaunchEvent>,
        write: UnboundedSender<CkptEvent>,
        _sample: UnboundedSender<telemetry::Samples>,
        _condition: watch::Sender<Condition>,
    }

    fn world() -> (World, Told) {
        let (say, events) = unbounded_channel();
        let (launch, launches) = unbounded_channel();
        let (sample, samples) = unbounded_channel();
        let (write, checkpoints) = unbounded_channel();
        let (condition, store) = watch::channel(Condition::Sound);
        let world = World {
            events,
            launches,
            samples,
            checkpoints,
            store,
        };
        let told = Told {
            say,
            launch,
            write,
            _sample: sample,
            _condition: condition,
        };
        (world, told)
    }

    fn exited(n: u64) -> LaunchEvent {
        LaunchEvent::Exited {
            incarnation: Incarnation(n),
            at: std::time::Instant::now(),
            exit: Exit::Signal(9),
            tail_of_log: String::new(),
        }
    }

    #[tokio::test]
    async fn of_more_than_is_handed_over_together_nothing_is_lost() {
        let (mut world, told) = world();
        for number in 0..10 {
            let _ = told.launch.send(exited(number));
        }
        let mut heard = Vec::new();
        while heard.len() < 10 {
            let clock = Clock::starting_after(Time::default());
            let first = world.next(clock, None, Instant::now()).await;
            let before = heard.len();
            world.hand_over(first, 4, |event| match event {
                Event::Launch(LaunchEvent::Exited { incarnation, .. }) => heard.push(incarnation.0),
                other => unreachable!("{other:?}"),
            });
            assert_eq!(heard.len() - before, (10 - before).min(4));
        }
        assert_eq!(heard, (0..10).collect::<Vec<u64>>());
    }

    #[tokio::test]
    async fn an_exit_is_handed_over_before_a_backlog_of_everything_else() {
        let (mut world, told) = world();
        let clock = Clock::starting_after(Time::default());
        let is_exit = |event: &Event| matches!(event, Event::Launch(_));
        for ticket in 0..1000 {
            let broken = false;
            let _ = told
                .say
                .send(RouteEvent::Released { ticket, broken }.into());
            let _ = told.write.send(CkptEvent::Untidy(String::new()));
        }
        let _ = told.launch.send(exited(1));
        // The core's time has come too, and the status is due.
        let due = Instant::now();
        let first = world.next(clock, Some(Time::default()), due).await;
        assert!(is_exit(&first), "{first:?}");
        let next = world.next_ready();
        assert!(next.is_some_and(|event| !is_exit(&event)));
        // In the middle of a batch as well.
        let _ = told.launch.send(exited(2));
        assert!(world.next_ready().as_ref().is_some_and(is_exit));
    }
}
