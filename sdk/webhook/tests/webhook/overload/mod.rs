//! The server under more than it can take: its own process, real TLS, peers that do not behave, and the API server that
//! must be answered all the same.

mod gate;
mod limits;
mod memory;
mod peers;
mod process;
mod retry;
