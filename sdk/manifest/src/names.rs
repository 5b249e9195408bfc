//! Kubernetes' names (RFC 1123), and labels and annotations that several crates use.

/// Whether this is a DNS label: 1 to 63 lower-case letters, digits and `-`, neither beginning nor ending with `-`.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether this is a DNS subdomain of at most 253 bytes. As in Kubernetes, its parts may be longer than a label.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| letter(b) || b == b'-')
        && [text.bytes().next(), text.bytes().last()].iter().all(|end| end.is_some_and(letter))
}

/// Label of the Lease of an operator's leader election: the operator's name.
pub const OPERATOR: &str = "portcullis.dev/operator";

/// Label selector of the Leases of an operator's leader elections, in all namespaces.
pub fn leader_selector(operator: &str) -> String {
    format!("{OPERATOR}={operator}")
}
