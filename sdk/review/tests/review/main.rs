//! Reviews, their answers, the patches in them, and the objects.

#![allow(clippy::unwrap_used)]

mod field;
mod object;
mod patches;
mod reviews;
mod scan;
