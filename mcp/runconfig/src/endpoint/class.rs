//! What kind of address one is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// What kind of address one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressClass {
    /// A server on the internet.
    Public,
    /// In a network that is not the internet: private, shared, for documentation or benchmarks, or of no known use.
    Private,
    /// Nobody's server: this machine, the link, a group, a cloud's metadata, or reserved.
    Forbidden,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// The first four groups of an address are enough for each of these networks; the others are zero.
const fn v6(a: u16, b: u16, c: u16, d: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), length)
}

const LINK_LOCAL_V4: Ipv4Net = v4(169, 254, 0, 0, 16);
const LINK_LOCAL_V6: Ipv6Net = v6(0xfe80, 0, 0, 0, 10);

/// IANA's special-purpose registry for IPv4, as far as no server is there.
const FORBIDDEN_V4: [Ipv4Net; 5] = [
    // "This network" (RFC 791): Linux connects to itself.
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    LINK_LOCAL_V4,
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// The metadata of Alibaba Cloud, Azure (WireServer) and Oracle Cloud, in ranges that are private or public otherwise.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

const PRIVATE_V4: [Ipv4Net; 10] = [
    // RFC 1918.
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    // RFC 6598, between a provider and its customers; clusters use it for pods.
    v4(100, 64, 0, 0, 10),
    // RFC 6890, protocol assignments.
    v4(192, 0, 0, 0, 24),
    // RFC 5737, documentation.
    v4(192, 0, 2, 0, 24),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    // RFC 7526, relays of 6to4, deprecated.
    v4(192, 88, 99, 0, 24),
    // RFC 2544, benchmarks.
    v4(198, 18, 0, 0, 15),
];

const FORBIDDEN_V6: [Ipv6Net; 4] = [
    LINK_LOCAL_V6,
    v6(0xff00, 0, 0, 0, 8),
    // Teredo hides the address of whoever it leads to.
    v6(0x2001, 0, 0, 0, 32),
    // RFC 8215: where in it an IPv4 address lies, the network decides; the usual place is judged before this.
    v6(0x64, 0xff9b, 1, 0, 48),
];

/// The metadata of AWS, the credentials of its pods, and the metadata of Google Cloud over IPv6, in ranges that are private otherwise.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The internet as far as it is assigned (RFC 4291 §2.4).
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 0, 0, 3);

/// What is not the internet in [`GLOBAL_V6`].
const PRIVATE_V6: [Ipv6Net; 5] = [
    // RFC 5180, benchmarks.
    v6(0x2001, 2, 0, 0, 48),
    // RFC 4843 and RFC 7343, identifiers that are no addresses.
    v6(0x2001, 0x10, 0, 0, 28),
    v6(0x2001, 0x20, 0, 0, 28),
    // RFC 3849 and RFC 9637, documentation.
    v6(0x2001, 0xdb8, 0, 0, 32),
    v6(0x3fff, 0, 0, 0, 20),
];

/// Where an IPv4 address is the last 32 bits of an IPv6 address.
const EMBEDDING: [Ipv6Net; 5] = [
    // RFC 4291: compatible (deprecated), which the unspecified and the loopback address are as well; and mapped.
    v6(0, 0, 0, 0, 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    // RFC 2765, translated.
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96),
    // RFC 6052 and RFC 8215, NAT64.
    v6(0x64, 0xff9b, 0, 0, 96),
    v6(0x64, 0xff9b, 1, 0, 96),
];

/// RFC 3056: the IPv4 address follows the prefix.
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 0, 16);

/// What kind of address `address` is. One that leads to an IPv4 address is of that one's kind.
pub(crate) fn class(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => embedded(address).map_or_else(|| class_v6(address), class_v4),
    }
}

/// Whether clouds answer at `address` for the machine's credentials: it is link-local or one of their other addresses, or leads to such an
/// IPv4 address.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    let is_v4 = |address| LINK_LOCAL_V4.contains(&address) || METADATA_V4.contains(&address);
    match address {
        IpAddr::V4(address) => is_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(address) => is_v4(address),
            None => LINK_LOCAL_V6.contains(&address) || METADATA_V6.contains(&address),
        },
    }
}

fn class_v4(address: Ipv4Addr) -> AddressClass {
    let is_in = |networks: &[Ipv4Net]| networks.iter().any(|network| network.contains(&address));
    if is_in(&FORBIDDEN_V4) || METADATA_V4.contains(&address) {
        AddressClass::Forbidden
    } else if is_in(&PRIVATE_V4) {
        AddressClass::Private
    } else {
        AddressClass::Public
    }
}

fn class_v6(address: Ipv6Addr) -> AddressClass {
    let is_in = |networks: &[Ipv6Net]| networks.iter().any(|network| network.contains(&address));
    if is_in(&FORBIDDEN_V6) || METADATA_V6.contains(&address) {
        AddressClass::Forbidden
    } else if is_in(&PRIVATE_V6) || !GLOBAL_V6.contains(&address) {
        AddressClass::Private
    } else {
        AddressClass::Public
    }
}

/// The address that is reached by `address`: an IPv4 address, where one of IPv6 leads to it.
pub(crate) fn leads_to(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The IPv4 address that `address` leads to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high, low| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    let [_, second, third, .., seventh, eighth]: [u16; 8] = address.segments();
    if SIX_TO_FOUR.contains(&address) {
        joined(second, third)
    } else if EMBEDDING.iter().any(|network| network.contains(&address)) {
        joined(seventh, eighth)
    } else {
        None
    }
}
