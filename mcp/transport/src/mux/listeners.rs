//! The streams on which sessions hear what belongs to no call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mcp_store::Client;
use tokio::sync::mpsc;

use super::backlog::{Backlog, Message};
use super::calls::QUEUE;

/// One stream a session.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    streams: Mutex<HashMap<Box<str>, Stream>>,
    backlog: Arc<Backlog>,
}

#[derive(Debug)]
struct Stream {
    client: Client,
    messages: mpsc::Sender<Message>,
}

impl Listeners {
    pub(super) fn new(backlog: Arc<Backlog>) -> Self {
        Self { streams: Mutex::default(), backlog }
    }

    /// Opens the stream of `session`. One that was open ends.
    pub(crate) fn open(&self, session: &str, client: Client) -> mpsc::Receiver<Message> {
        let (messages, receiver) = mpsc::channel(QUEUE);
        let mut streams = self.lock();
        // Looking at every stream is dear, so it waits until there are twice as many.
        if streams.len().is_power_of_two() {
            streams.retain(|_, stream| !stream.messages.is_closed());
        }
        streams.insert(session.into(), Stream { client, messages });
        receiver
    }

    /// Ends the stream of `session`.
    pub(crate) fn close(&self, session: &str) {
        self.lock().remove(session);
    }

    /// Tells the `sessions` that listen. One whose reader is gone or behind does not hear of it.
    pub(super) fn tell(&self, sessions: &[Arc<str>], message: &[u8]) {
        // A copy: the message is a slice of what was read from the server.
        let message = Bytes::copy_from_slice(message);
        let streams = self.lock();
        for stream in sessions.iter().filter_map(|session| streams.get(&**session)) {
            self.push(stream, &message);
        }
    }

    /// Tells every session that listens.
    pub(super) fn tell_all(&self, message: &[u8]) {
        let message = Bytes::copy_from_slice(message);
        // The order of the table does not matter to anybody who is told the same thing as everybody else.
        #[expect(clippy::iter_over_hash_type)]
        for stream in self.lock().values() {
            self.push(stream, &message);
        }
    }

    fn push(&self, stream: &Stream, message: &Bytes) {
        let room = self.backlog.room(&stream.client, message.len());
        let fits = room.is_some();
        let message = Message { bytes: message.clone(), room };
        if !fits || stream.messages.try_send(message).is_err() {
            tracing::debug!("dropped a notification: its reader is gone or behind");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
