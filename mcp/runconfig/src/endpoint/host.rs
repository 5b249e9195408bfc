//! What the text of a URL's host says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::AddressClass;

/// Names of the Kubernetes API: the first as pods of its own namespace write it, the second with whatever follows it after
/// a dot. And that of Google Cloud's metadata.
const SHORT_API: &str = "kubernetes";
const API: &str = "kubernetes.default";
const METADATA: &str = "metadata.google.internal";
/// What Kubernetes' own names end with.
const CLUSTER: &str = "cluster.local";

/// A URL's host.
pub(super) enum Host {
    Address(IpAddr),
    /// `localhost`, or a name under it (RFC 6761 §6.3).
    Localhost,
    /// Another name, and what kind of address it has as far as the name says.
    Name(AddressClass),
}

impl Host {
    /// Reads `text`; `None` where it is neither a name nor an address in its usual form.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            // An address with a zone is on this machine's link, and does not parse.
            return address.parse::<Ipv6Addr>().ok().map(|address| Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.split('.').any(|label| !is_label(label)) {
            return None;
        }
        // A last label that is a number makes it an address (WHATWG URL §3.5): 127.1, 0x7f.1 and 2130706433 reach 127.0.0.1 in some
        // resolvers.
        if name.rsplit('.').next().is_some_and(is_number) {
            return name.parse::<Ipv4Addr>().ok().map(|address| Self::Address(address.into()));
        }
        let is_or_under =
            |parent: &str| name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if is_or_under("localhost") {
            return Some(Self::Localhost);
        }
        let is_api =
            name == SHORT_API || name.strip_prefix(API).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        Some(Self::Name(if is_api || name == METADATA {
            AddressClass::Forbidden
        } else if is_or_under(CLUSTER) {
            AddressClass::Private
        } else {
            AddressClass::Public
        }))
    }
}

/// Whether it may be a part of a name; `_` is in names that resolvers know, and in those of some services.
fn is_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Whether resolvers take it for a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x");
    hex.map_or_else(
        || label.bytes().all(|byte| byte.is_ascii_digit()),
        |hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}
