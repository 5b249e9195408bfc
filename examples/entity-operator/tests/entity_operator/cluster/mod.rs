//! The operator's binary behind a real API server: what it generates is applied as it is, and it runs with exactly the
//! rights that it asks for.

mod extremes;
mod guide;
mod installation;
mod manifests;
