//! Reviews, their answers, and the patches in them.

#![allow(clippy::unwrap_used)]

mod patches;
mod reviews;
