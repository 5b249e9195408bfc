//! Harnesses that compare figures side by side in one run: compare the ratios, machines differ.

pub mod peers;
pub mod proc;
pub mod proxy;
pub mod webhook;
