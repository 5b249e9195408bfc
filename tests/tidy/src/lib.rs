//! The invariants of the repository, as tests.
