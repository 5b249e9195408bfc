//! The webhook server as a peer on the wire sees it: raw sockets, real TLS, and peers that do not behave.

mod answers;
mod http;
mod lifecycle;
mod metrics;
mod shed;
mod slow;
