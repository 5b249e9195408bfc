//! A client's message that outlives the request it came in.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use self_cell::self_cell;

use self::cell::Cell;
use crate::{Id, Kind, Message, MessageError};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

#[expect(clippy::mem_forget, reason = "what the macro expands to guards against a panic in the constructor")]
mod cell {
    use super::{Bytes, Message, self_cell};

    self_cell!(
        pub(super) struct Cell {
            owner: Bytes,
            #[covariant]
            dependent: Message,
        }
    );
}

/// The bytes of a client's message and the envelope that was read from them, once. Clones share both.
#[derive(Clone)]
pub struct OwnedMessage(Arc<Cell>);

impl OwnedMessage {
    /// Reads `body` as [`Message::parse_strict`] does. A byte order mark before the message is accepted and dropped.
    ///
    /// # Errors
    /// What makes `body` something else than one message that every parser reads alike.
    pub fn read(body: Bytes) -> Result<Self, MessageError> {
        let body = if body.starts_with(BYTE_ORDER_MARK) { body.slice(BYTE_ORDER_MARK.len()..) } else { body };
        Ok(Self(Arc::new(Cell::try_new(body, |body| Message::parse_strict(body))?)))
    }

    /// The message, without reading it again.
    pub fn message(&self) -> &Message<'_> {
        self.0.borrow_dependent()
    }

    /// The bytes of the message: the received ones, without a byte order mark.
    pub fn body(&self) -> &Bytes {
        self.0.borrow_owner()
    }

    /// What the message asks of its receiver.
    pub fn kind(&self) -> Kind {
        self.message().kind()
    }

    /// The method, unescaped; `None` for responses.
    pub fn method(&self) -> Option<&str> {
        self.message().method()
    }

    /// The id; `None` for notifications, and for errors about a message that could not be read.
    pub fn id(&self) -> Option<Id<'_>> {
        self.message().id()
    }
}

impl fmt::Debug for OwnedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedMessage").field(self.message()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_read_from_the_bytes_that_are_kept() {
        let body = Bytes::from_static(br#" {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}} "#);
        let message = OwnedMessage::read(body.clone()).unwrap();
        let copy = message.clone();
        drop(message);
        assert_eq!((copy.kind(), copy.method()), (Kind::Request, Some("tools/call")));
        assert_eq!(copy.message().target().unwrap().as_deref(), Some("x"));
        assert_eq!(copy.body().as_ptr(), body.as_ptr());
        // The id lies in the body, not beside it.
        let range = body.as_ptr_range();
        assert!(range.contains(&copy.id().unwrap().raw().as_ptr()));
    }

    #[test]
    fn a_byte_order_mark_is_accepted_once_and_not_kept() {
        let json = r#"{"jsonrpc":"2.0","method":"ping"}"#;
        let message = OwnedMessage::read(Bytes::from(format!("\u{feff}{json}"))).unwrap();
        assert_eq!(message.body(), json);
        assert!(OwnedMessage::read(Bytes::from(format!("\u{feff}\u{feff}{json}"))).is_err());
    }
}
