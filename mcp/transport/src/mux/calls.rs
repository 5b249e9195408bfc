//! The calls that the server has not answered yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp_store::{Bound, Client};
use mcp_wire::{ErrorBody, code};
use tokio::sync::{mpsc, oneshot};

use super::backlog::{Backlog, Message, Room};
use super::ids;

/// How many messages wait for one reader before further notifications to it are dropped.
pub(super) const QUEUE: usize = 100;
/// An answer up to this size that is all that its reader gets is not counted: the connection's own buffers take as much.
const SMALL: usize = 8 << 10;

/// What a client hears when its call went down with the process.
pub(crate) const ENDED: &str = "the MCP server's process ended; it is being restarted";
const NO_ROOM: &str = "the answer was dropped: too many bytes wait for clients that read slowly";

/// Where the answer to a call goes.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer alone.
    Once(oneshot::Sender<Message>),
    /// The answer to the handshake in this revision, which is kept before anybody hears of it: a process that takes the place of the one that
    /// answered must be greeted.
    Handshake(&'static str, oneshot::Sender<Message>),
    /// Notifications about the call, then the answer.
    Stream(mpsc::Sender<Message>),
}

/// Where a call comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The session that it came in.
    pub(super) session: Option<Arc<str>>,
    /// The holder of its line while that waits for the server, and of its answer while that waits for its reader.
    pub(super) client: Client,
}

/// One call: what the client called it and where its answer goes.
#[derive(Debug)]
pub(super) struct Call {
    /// The client's id, as JSON text.
    pub(super) id: Box<str>,
    /// The client's progress token, as JSON text.
    pub(super) token: Option<Box<str>>,
    /// `None` for the multiplexer's own.
    pub(super) origin: Option<Origin>,
    pub(super) reply: Reply,
    /// Whether the process that the pipe leads to now may have read it.
    pub(super) written: bool,
}

/// The calls by their number.
#[derive(Debug)]
pub(super) struct Calls {
    open: Mutex<HashMap<u64, Call>>,
    backlog: Arc<Backlog>,
}

impl Calls {
    pub(super) fn new(backlog: Arc<Backlog>) -> Self {
        Self { open: Mutex::default(), backlog }
    }

    /// A number that no call has. Nobody can guess it.
    pub(super) fn fresh(&self) -> u64 {
        let calls = self.lock();
        loop {
            let number = ids::random();
            if !calls.contains_key(&number) {
                return number;
            }
        }
    }

    pub(super) fn open(&self, number: u64, call: Call) {
        self.lock().insert(number, call);
    }

    /// Takes the call out: its answer has come, or nobody waits for it any more.
    pub(super) fn close(&self, number: u64) -> Option<Call> {
        self.lock().remove(&number)
    }

    /// Notes that the call is written. Returns whether anybody still waits for it: if not, it must not be written.
    pub(super) fn write(&self, number: u64) -> bool {
        self.lock().get_mut(&number).map(|call| call.written = true).is_some()
    }

    /// Notes that the pipe took nothing of the call, which is to be written to the next.
    pub(super) fn unwrite(&self, number: u64) {
        if let Some(call) = self.lock().get_mut(&number) {
            call.written = false;
        }
    }

    /// Hands a notification to the stream of call `number`; `make` gets the call. Dropped when the reader is behind: the last place in
    /// its queue is kept for the answer.
    pub(super) fn notify(&self, number: u64, make: impl FnOnce(&Call) -> Vec<u8>) {
        let calls = self.lock();
        let Some(call) = calls.get(&number) else { return };
        let Reply::Stream(stream) = &call.reply else { return };
        let message = (stream.capacity() > 1).then(|| make(call)).and_then(|bytes| {
            let room = call.origin.as_ref().map(|origin| self.backlog.room(&origin.client, bytes.len()));
            (!matches!(room, Some(None))).then(|| Message { bytes: bytes.into(), room: room.flatten() })
        });
        if message.is_none_or(|message| stream.try_send(message).is_err()) {
            tracing::debug!("dropped a notification: its reader is gone or behind");
        }
    }

    /// The number of the client's call `id` of `session`.
    pub(super) fn find(&self, session: &str, id: &str) -> Option<u64> {
        let calls = self.lock();
        let of_session =
            |call: &Call| call.origin.as_ref().and_then(|origin| origin.session.as_deref()) == Some(session);
        let mut found = calls.iter().filter(|(_, call)| *call.id == *id && of_session(call));
        found.next().map(|(number, _)| *number)
    }

    /// Fails the calls that were written to a process that is gone. The others wait for the next one.
    pub(super) fn fail_written(&self) {
        let calls: Vec<Call> = self.lock().extract_if(|_, call| call.written).map(|(_, call)| call).collect();
        fail(calls);
    }

    /// Fails every call: no process comes any more.
    pub(super) fn fail_all(&self) {
        let calls = std::mem::take(&mut *self.lock());
        fail(calls.into_values());
    }

    /// Delivers the answer to a call that was closed. Nobody may be waiting any more.
    pub(super) fn answer(&self, call: Call, answer: Vec<u8>) {
        let counted = answer.len() > SMALL || matches!(call.reply, Reply::Stream(_));
        let room =
            call.origin.as_ref().filter(|_| counted).map(|origin| self.backlog.room(&origin.client, answer.len()));
        let message = if let Some(None) = room {
            tracing::warn!(bytes = answer.len(), "dropped an answer: its client reads too slowly");
            let error = ErrorBody::new(code::INTERNAL, NO_ROOM).raw_id(Some(&call.id)).encode();
            Message { bytes: error.into(), room: None }
        } else {
            Message { bytes: answer.into(), room: room.flatten() }
        };
        call.deliver(message);
    }

    pub(super) fn bound(&self) -> Bound {
        self.backlog.bound()
    }

    pub(super) fn room(&self, client: &Client, bytes: usize) -> Option<Room> {
        self.backlog.room(client, bytes)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Call>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits for one answer sees its channel closed; who reads a stream is told.
fn fail(calls: impl IntoIterator<Item = Call>) {
    for call in calls {
        if matches!(call.reply, Reply::Stream(_)) {
            let body = ErrorBody::new(code::INTERNAL, ENDED).raw_id(Some(&call.id)).encode();
            call.deliver(Message { bytes: body.into(), room: None });
        }
    }
}

impl Call {
    fn deliver(self, message: Message) {
        match self.reply {
            Reply::Once(reply) | Reply::Handshake(_, reply) => drop(reply.send(message)),
            Reply::Stream(stream) => drop(stream.try_send(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_for_which_there_is_no_room_is_an_error_and_those_of_others_come() {
        let calls = Calls::new(Arc::default());
        let call = |address: u8, reply| Call {
            id: "7".into(),
            token: None,
            origin: Some(Origin { session: None, client: Client::Network([192, 0, 2, address].into()) }),
            reply,
            written: true,
        };
        let mut answers = Vec::new();
        for address in [1, 1, 1, 2] {
            let (reply, answer) = oneshot::channel();
            calls.answer(call(address, Reply::Once(reply)), vec![b'x'; 10 << 20]);
            answers.push(answer);
        }
        let lengths = answers.iter_mut().map(|answer| answer.try_recv().unwrap());
        let lengths: Vec<_> = lengths.map(|message| (message.bytes.len() > 1000, message)).collect();
        let [(true, _), (true, _), (false, refused), (true, _)] = &lengths[..] else { panic!("{lengths:?}") };
        let refused = String::from_utf8_lossy(&refused.bytes);
        assert!(refused.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"#), "{refused}");
    }
}
