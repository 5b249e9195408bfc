//! The listener of the proxies: HTTP/1.1 for thousands of clients, none of which takes what all share.
//!
//! When all [places](Places) are taken and a new connection waits, the client that holds most gives one up: a connection
//! that is idle, else its oldest stream ([`Given`]). A client is a network until it has logged in. A call under way is
//! never cut off. While all or nearly all are at work with calls, [`Limits::reserved`] more connections are accepted: each
//! gets one response from [`Handler::shed`] and is closed, and so does the next request of a client whose calls hold more
//! than its share.
//!
//! Unfinished heads hold at most [`Limits::heads`] bytes: beyond, the client whose heads hold most loses its longest. The
//! first head on a connection has at most 16 KiB.

mod body;
mod clock;
mod connection;
mod handler;
mod heads;
mod limits;
mod places;
mod serve;
mod server;
mod socket;
mod workers;

#[cfg(test)]
mod tests;

pub use body::RequestBody;
pub use handler::Handler;
pub use limits::Limits;
pub use places::{Given, Place, Places, Streaming, Use};
pub use server::Server;
pub use workers::Workers;
