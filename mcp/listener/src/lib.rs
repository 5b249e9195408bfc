//! The listener of the proxies: HTTP/1.1 for thousands of clients, none of which takes what all share.
//!
//! When all [places](Places) are taken and a new connection waits, the client that holds most gives one up: of its idle
//! connections the one that never sent a request, then the one that has been idle longest. A request under way is never
//! cut off. While all or nearly all are at work, [`Limits::reserved`] more are accepted: each gets one response from
//! [`Handler::shed`] and is closed.

mod places;
mod server;
mod workers;

#[cfg(test)]
mod tests;

pub use places::{Place, Places};
pub use server::{Handler, Limits, Server};
pub use workers::Workers;
