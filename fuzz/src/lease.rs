//! The lease decision: what is seen of a Lease, one after another.

/// Reads a body as a list of Leases that are seen and of time that passes, and decides after each; see
/// [`portcullis_lease::decisions_hold`].
///
/// # Panics
/// When two candidates may act at a time, a holder goes on beyond its deadline, or somebody waits for a time that has passed.
pub fn lease(body: &[u8]) {
    if let Err(broken) = portcullis_lease::decisions_hold(body) {
        panic!("{broken}");
    }
}
