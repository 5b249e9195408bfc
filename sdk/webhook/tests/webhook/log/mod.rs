//! What is logged: enough to find what went wrong, and nothing of what is in an object.

mod conversions;
mod decisions;
mod lines;
mod spans;
