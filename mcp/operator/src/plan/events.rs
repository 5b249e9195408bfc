//! What `kubectl describe` tells.

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something went its way.
    Normal,
    /// Somebody should look.
    Warning,
}

/// An event to publish about the planned object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// How it is meant.
    pub type_: EventType,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence, at most 1024 bytes.
    pub note: String,
}

impl PlannedEvent {
    /// An event; a note that is too long for one is cut.
    pub(crate) fn new(type_: EventType, reason: &str, note: &str) -> Self {
        Self { type_, reason: reason.to_owned(), note: note[..note.floor_char_boundary(1024)].to_owned() }
    }
}
