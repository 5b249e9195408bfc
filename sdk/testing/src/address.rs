//! Addresses for servers that get theirs as a flag.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// An unused address of 127.0.0.1, for a server that gets its address as a flag.
///
/// Its port lies between 10,000 and 29,999, which Linux does not assign by itself: a port that the kernel chooses may
/// be the source of another connection by the time the server starts.
///
/// # Panics
/// When none of a hundred such ports is free.
pub fn free_address() -> SocketAddr {
    let random = || u16::try_from(10_000 + RandomState::new().hash_one(()) % 20_000).ok();
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, random()?)).ok()?.local_addr().ok();
    (0..100).find_map(|_| free()).unwrap_or_else(|| panic!("none of a hundred loopback ports is free"))
}
