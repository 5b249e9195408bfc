//! The deadlines of one connection, over one timer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::connection::{Activity, Connection, Told};
use crate::limits::Limits;

/// Time for a request to arrive when the listener ends: the client has not heard of it.
const END: Duration = Duration::from_secs(1);
/// Interval at which the socket is asked whether the client of a request under way is still there.
const LOOK: Duration = Duration::from_secs(5);

/// A deadline belongs to an activity, the number of requests so far and an instruction.
type Phase = (Activity, usize, Told);

/// The thing that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The client had its time: the connection ends.
    End,
    /// A request is under way for some time: see whether its client is still there.
    Look,
}

pub(crate) struct Clock {
    limits: Limits,
    /// When the first request is overdue.
    first_request: Instant,
    timed: Option<Phase>,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Clock {
    pub(crate) fn new(limits: Limits) -> Self {
        let timer = Box::pin(sleep(limits.first_request));
        let deadline = timer.deadline();
        Self { limits, first_request: deadline, timed: None, deadline, timer }
    }

    /// Called whenever the connection was worked on. The timer is moved only when it is due or too late, not for each
    /// request.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<Due> {
        let phase = (connection.activity(), connection.requests(), connection.told());
        if phase.2 == Told::Close || phase.0 != Activity::Serves && phase.2 == Told::Leave {
            return Poll::Ready(Due::End);
        }
        if self.timed != Some(phase) {
            self.timed = Some(phase);
            self.deadline = self.deadline_of(phase);
        }
        if self.timer.deadline() > self.deadline {
            self.timer.as_mut().reset(self.deadline);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if now < self.deadline {
                self.timer.as_mut().reset(self.deadline);
            } else if phase.0 == Activity::Serves {
                self.deadline = now + LOOK;
                return Poll::Ready(Due::Look);
            } else {
                return Poll::Ready(Due::End);
            }
        }
    }

    fn deadline_of(&self, phase: Phase) -> Instant {
        let now = Instant::now();
        match phase {
            (Activity::Serves, ..) => now + LOOK,
            (.., Told::End | Told::Cut | Told::Close) => now + END,
            (Activity::Waits, 0, _) => self.first_request,
            (Activity::Reads, 0, _) => self.first_request.min(now + self.limits.head),
            (Activity::Waits, ..) => now + self.limits.idle,
            (Activity::Reads, ..) => now + self.limits.head,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use portcullis_listener::Crowded;

    use super::*;

    const LIMITS: fn() -> Limits = || Limits {
        first_request: Duration::from_millis(300),
        idle: Duration::from_millis(200),
        head: Duration::from_millis(50),
        ..Limits::default()
    };

    struct Client {
        clock: Clock,
        connection: Connection,
    }

    fn client() -> Client {
        let connection = Connection::new(([127, 0, 0, 1], 1).into(), &Crowded::default());
        Client { clock: Clock::new(LIMITS()), connection }
    }

    impl Client {
        /// Returns the time until something is due, and what it is.
        async fn due(&mut self) -> (Duration, Due) {
            let start = Instant::now();
            let due = poll_fn(|cx| self.clock.poll(cx, &self.connection)).await;
            (start.elapsed(), due)
        }

        /// Nothing is due for so long.
        async fn quiet(&mut self, time: Duration) {
            assert!(tokio::time::timeout(time, self.due()).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_renews_the_time_to_the_next_also_when_it_is_answered_at_once() {
        let mut client = client();
        for _ in 0..5 {
            client.quiet(LIMITS().idle * 9 / 10).await;
            drop(client.connection.request());
        }
        assert_eq!(client.due().await, (LIMITS().idle, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_however_many_follow() {
        let mut client = client();
        drop(client.connection.request());
        client.quiet(LIMITS().idle / 2).await;
        client.connection.first_byte();
        for _ in 0..4 {
            client.quiet(LIMITS().head / 5).await;
            client.connection.first_byte();
        }
        assert_eq!(client.due().await, (LIMITS().head / 5, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_head_that_begins_late_has_no_time_of_its_own() {
        let mut client = client();
        client.quiet(LIMITS().head * 29 / 5).await;
        client.connection.first_byte();
        assert_eq!(client.due().await, (LIMITS().head / 5, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_is_served_silence_has_no_limit_but_the_client_is_looked_for() {
        let mut client = client();
        let busy = client.connection.request();
        for _ in 0..100 {
            assert_eq!(client.due().await, (LOOK, Due::Look));
        }
        drop(busy);
        assert_eq!(client.due().await, (LIMITS().idle, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_that_is_told_to_leave_ends_at_once() {
        let mut client = client();
        client.connection.first_byte();
        client.connection.tell(Told::Leave);
        assert_eq!(client.due().await, (Duration::ZERO, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_at_work_ends_only_when_it_is_told_to_close() {
        let mut client = client();
        let _busy = client.connection.request();
        client.connection.tell(Told::Leave);
        assert_eq!(client.due().await, (LOOK, Due::Look));
        client.connection.tell(Told::Close);
        assert_eq!(client.due().await, (Duration::ZERO, Due::End));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_a_second_for_its_request_when_the_listener_ends() {
        let mut client = client();
        client.connection.tell(Told::End);
        assert_eq!(client.due().await, (END, Due::End));
    }
}
