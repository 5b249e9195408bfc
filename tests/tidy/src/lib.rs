//! The invariants of the repository, as tests: what ARCHITECTURE.md states about the crates and their sources is checked here.
//!
//! The library holds what the tests read: the tracked files, what their modules import, and the dependency graph
//! as cargo resolves it.

mod graph;
mod imports;
mod published;
mod sources;

pub use graph::Graph;
pub use imports::Imports;
pub use published::published;
pub use sources::{Source, repository_root, sources, tracked_files};
