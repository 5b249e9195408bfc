//! The log has enough to find what went wrong, and nothing of an object's content.

mod conversions;
mod decisions;
mod lines;
mod spans;
