//! What clients see of a multiplexer: one module a protocol.

mod events;
mod streamable;

pub use streamable::{Streamable, StreamableConfig};
