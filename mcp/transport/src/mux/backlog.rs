//! How much may wait for readers, in bytes.

use std::sync::Arc;

use bytes::Bytes;
use mcp_store::{Bound, Client, Share, Shares};

/// What waits for the readers of all streams and answers together.
const MAX_BYTES: usize = 64 << 20;
/// What waits for one client: a slow reader does not take the room of others. At least one of the longest messages fits.
const MAX_CLIENT_BYTES: usize = 24 << 20;
/// What a message takes beside its bytes.
const OVERHEAD: usize = 128;

/// Counts what waits for readers.
#[derive(Debug)]
pub(super) struct Backlog(Arc<Shares>);

/// Room that is given back when it is dropped.
pub(crate) type Room = Share;

impl Default for Backlog {
    fn default() -> Self {
        Self(Shares::new(MAX_BYTES, MAX_CLIENT_BYTES))
    }
}

impl Backlog {
    pub(super) fn bound(&self) -> Bound {
        self.0.bound("waiting_messages")
    }

    /// Room for `bytes` more for `client`; `None` when too much waits already.
    pub(super) fn room(&self, client: &Client, bytes: usize) -> Option<Room> {
        self.0.take(client, bytes + OVERHEAD)
    }
}

/// A message on its way to a reader, and the room that it takes until it has been sent.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Bytes,
    pub(super) room: Option<Room>,
}

impl Message {
    /// `bytes`, made of the message, in its place: they keep the room for as long as they live.
    pub(crate) fn becomes(self, bytes: Vec<u8>) -> Bytes {
        match self.room {
            Some(room) => Bytes::from_owner(Kept { bytes, _room: room }),
            None => bytes.into(),
        }
    }

    /// The message itself, in the same way.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.room {
            Some(room) => Bytes::from_owner(Kept { bytes: self.bytes, _room: room }),
            None => self.bytes,
        }
    }
}

/// Bytes that keep their room.
struct Kept<B> {
    bytes: B,
    _room: Room,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Kept<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_slow_readers_does_not_grow_without_bound_and_leaves_room_for_others() {
        let backlog = Backlog::default();
        let at = |n: u8| Client::Network([192, 0, 2, n].into());
        let slow: Vec<Room> = std::iter::from_fn(|| backlog.room(&at(1), 8 << 20)).collect();
        assert_eq!(slow.len(), 2, "the third would be more than one client may have");
        assert!(backlog.room(&at(2), 16 << 20).is_some(), "another client's longest message");
        let all: Vec<Room> = (0..=u8::MAX).filter_map(|n| backlog.room(&at(n), 1 << 20)).collect();
        assert!(slow.len() * (8 << 20) + all.len() * (1 << 20) <= MAX_BYTES);
        drop((slow, all));
        assert_eq!(backlog.0.taken(), 0);
    }

    #[test]
    fn a_message_keeps_its_room_until_its_last_byte_has_been_sent() {
        let backlog = Backlog::default();
        let client = Client::Network([192, 0, 2, 1].into());
        let waits = || backlog.0.taken() > 0;
        let message = || Message { bytes: Bytes::from_static(b"message"), room: backlog.room(&client, 1) };
        for send in [Message::into_bytes as fn(Message) -> Bytes, |message| message.becomes(b"frame".to_vec())] {
            let sent = send(message());
            let rest = sent.slice(1..);
            drop(sent);
            assert!(waits());
            drop(rest);
            assert!(!waits());
        }
    }
}
