use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::time::{Clock, Moment};

/// A machine's clock: it runs with the real one, its wall is off by some seconds, and it can be stopped.
#[derive(Clone, Debug)]
pub(crate) struct TestClock {
    origin: Instant,
    skew: i64,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    lost: Duration,
    stopped: Option<Instant>,
}

impl TestClock {
    pub(crate) fn skewed(skew: i64) -> Self {
        Self { origin: Instant::now(), skew, state: Arc::new(watch::Sender::new(State::default())) }
    }

    pub(crate) fn stop(&self) {
        self.state.send_modify(|state| state.stopped = Some(Instant::now()));
    }

    pub(crate) fn go_on(&self) {
        self.state.send_modify(|state| state.lost += state.stopped.take().unwrap().elapsed());
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let state = *self.state.borrow();
        let until = state.stopped.unwrap_or_else(Instant::now);
        Moment::since_origin(until.duration_since(self.origin) - state.lost)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.skew)
    }

    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let mut changes = clock.state.subscribe();
            loop {
                let stopped = changes.borrow_and_update().stopped.is_some();
                let rest = until.since(clock.now());
                if rest.is_zero() && !stopped {
                    return;
                }
                // A stopped machine does nothing; what waits on it waits for it to go on.
                let time =
                    async { if stopped { std::future::pending().await } else { tokio::time::sleep(rest).await } };
                tokio::select! {
                    () = time => {}
                    news = changes.changed() => news.unwrap(),
                }
            }
        })
    }
}
