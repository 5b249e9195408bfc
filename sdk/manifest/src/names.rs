//! What Kubernetes takes for a name (RFC 1123), and the names of what several parts look for.

/// A label: 1 to 63 lower-case letters, digits and `-`, which neither begin nor end with `-`.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Parts joined by dots, 253 bytes at most together. Kubernetes does not ask that a part is no longer than a label.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| letter(b) || b == b'-')
        && [text.bytes().next(), text.bytes().last()].iter().all(|end| end.is_some_and(letter))
}

/// The label of the Lease of a cluster-wide installation's leader: which operator it is.
pub const OPERATOR: &str = "portcullis.dev/operator";
/// What follows a release in the name of its leader's Lease.
pub const LEADER: &str = "-leader";

/// What selects the Leases of the leaders of an operator's installations.
pub fn leaders(operator: &str) -> String {
    format!("{OPERATOR}={operator}")
}

/// The release whose leader holds the Lease of this name.
pub fn release_of(lease: &str) -> &str {
    lease.strip_suffix(LEADER).unwrap_or(lease)
}

/// The annotation by which a development session marks what it put into a cluster.
pub const DEV_SESSION: &str = "portcullis.dev/dev-session";
/// The label that says whose session it is.
pub const DEV_OWNER: &str = "portcullis.dev/dev-owner";
/// The annotation that says when it ends at the latest (RFC 3339).
pub const DEV_EXPIRES: &str = "portcullis.dev/dev-expires";
/// Seconds by which another machine's clock may be off: so long after its end another's session is taken for over.
pub const DEV_SKEW_SECONDS: i64 = 300;
/// The label that says which release's webhooks a development session serves.
pub const DEV_OF: &str = "portcullis.dev/dev-of";
/// All of a session's mark. A Lease that a session created has it as annotations.
pub const DEV_MARK: [&str; 4] = [DEV_SESSION, DEV_OWNER, DEV_EXPIRES, DEV_OF];
