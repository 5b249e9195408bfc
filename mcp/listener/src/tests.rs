//! The listener and its clients.

mod clients;
mod workers;
