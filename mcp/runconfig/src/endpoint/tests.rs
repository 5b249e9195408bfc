use super::AddressClass::{Forbidden, Private, Public};
use super::*;

fn check_url(url: &str, allow_private: bool) -> Result<(), EndpointError> {
    EndpointPolicy::new(allow_private, Vec::new()).check_url(url)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_range_begins_and_ends_where_its_registry_says() {
    // The address before the range, its first, its last, and the one after it.
    for (before, first, last, after, inside) in [
        ("", "0.0.0.0", "0.255.255.255", "1.0.0.0", Forbidden),
        ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", Forbidden),
        ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0", Forbidden),
        ("223.255.255.255", "224.0.0.0", "255.255.255.255", "", Forbidden),
        ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", Private),
        ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0", Private),
        ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0", Private),
        ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0", Private),
        ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0", Private),
        ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0", Private),
        ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0", Private),
        ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0", Private),
        ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0", Private),
        ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0", Private),
        ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001::", "2001:0:ffff::", "2001:1::", Forbidden),
        ("2001:1:ffff::", "2001:2::", "2001:2:0:ffff::", "2001:2:1::", Private),
        ("2001:f:ffff::", "2001:10::", "2001:2f:ffff::", "2001:30::", Private),
        ("2001:db7:ffff::", "2001:db8::", "2001:db8:ffff::", "2001:db9::", Private),
        ("3ffe:ffff::", "3fff::", "3fff:fff:ffff::", "3fff:1000::", Private),
        ("3fff:ffff::", "4000::", "fe7f:ffff::", "", Private),
        ("", "fe80::", "febf:ffff::", "", Forbidden),
        ("", "fec0::", "feff:ffff::", "", Private),
        ("", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", Forbidden),
        ("", "100::", "1fff:ffff::", "2000::", Private),
    ] {
        for (text, expected) in [(before, Public), (first, inside), (last, inside), (after, Public)] {
            if !text.is_empty() {
                assert_eq!(class(address(text)), expected, "{text}");
            }
        }
    }
}

#[test]
fn metadata_and_addresses_of_this_machine_are_forbidden_wherever_they_lie() {
    for (text, expected) in [
        ("100.100.100.199", Private),
        ("100.100.100.200", Forbidden),
        ("168.63.129.15", Public),
        ("168.63.129.16", Forbidden),
        ("168.63.129.17", Public),
        ("192.0.0.191", Private),
        ("192.0.0.192", Forbidden),
        ("169.254.169.254", Forbidden),
        ("fd00:ec2::23", Forbidden),
        ("fd00:ec2::24", Private),
        ("fd00:ec2::254", Forbidden),
        ("fd20:ce::254", Forbidden),
        ("::", Forbidden),
        ("::1", Forbidden),
        ("fc00::1", Private),
        ("fdff:ffff::1", Private),
    ] {
        assert_eq!(class(address(text)), expected, "{text}");
    }
}

#[test]
fn an_ipv4_address_is_judged_inside_every_ipv6_form_of_it() {
    for (v4, hex, expected, metadata) in [
        ("8.8.8.8", "0808:0808", Public, false),
        ("10.1.2.3", "0a01:0203", Private, false),
        ("127.0.0.1", "7f00:0001", Forbidden, false),
        ("169.254.169.254", "a9fe:a9fe", Forbidden, true),
        ("168.63.129.16", "a83f:8110", Forbidden, true),
    ] {
        for text in [
            format!("::{v4}"),
            format!("::ffff:{v4}"),
            format!("::ffff:0:{v4}"),
            format!("64:ff9b::{v4}"),
            format!("64:ff9b:1::{v4}"),
            format!("2002:{hex}::1"),
        ] {
            assert_eq!(class(address(&text)), expected, "{text}");
            assert_eq!(is_metadata(address(&text)), metadata, "{text}");
        }
    }
    // Local NAT64 with the IPv4 address elsewhere, and Teredo.
    for text in ["64:ff9b:1:808:8:800::", "64:ff9b:1:ffff::8.8.8.8", "2001::8.8.8.8"] {
        assert_eq!(class(address(text)), Forbidden, "{text}");
    }
}

#[test]
fn the_text_of_a_url_is_judged_by_its_host() {
    use EndpointError as E;
    let text = |host: &str| host.to_owned();
    // What is refused always; and only without leave to call private addresses.
    for (url, always, without_leave) in [
        ("https://mcp.example.com/mcp?k=v", None, None),
        ("HTTPS://MCP.Example.com.:8443", None, None),
        ("http://8.8.8.8", None, None),
        ("https://[2606:4700::1111]/mcp", None, None),
        ("https://xn--bcher-kva.example", None, None),
        ("https://my_service.example.com", None, None),
        ("https://localhost.example.com", None, None),
        ("https://notcluster.local", None, None),
        ("https://kubernetes.defaults.example", None, None),
        ("https://10.0.0.1/mcp", None, Some(E::Private(text("10.0.0.1")))),
        ("https://10.0.0.1./mcp", None, Some(E::Private(text("10.0.0.1.")))),
        ("https://[fd12::1]:1", None, Some(E::Private(text("[fd12::1]")))),
        ("https://[::ffff:10.0.0.1]", None, Some(E::Private(text("[::ffff:10.0.0.1]")))),
        ("http://mcp.prod.svc.Cluster.Local", None, Some(E::Private(text("mcp.prod.svc.Cluster.Local")))),
        ("http://mcp.prod.svc.cluster.local./", None, Some(E::Private(text("mcp.prod.svc.cluster.local.")))),
        ("http://localhost:1", Some(E::Forbidden(text("localhost"))), None),
        ("http://LocalHost.", Some(E::Forbidden(text("LocalHost."))), None),
        ("http://a.localhost", Some(E::Forbidden(text("a.localhost"))), None),
        ("http://127.0.0.2", Some(E::Forbidden(text("127.0.0.2"))), None),
        ("http://0.0.0.0", Some(E::Forbidden(text("0.0.0.0"))), None),
        ("http://[::1]", Some(E::Forbidden(text("[::1]"))), None),
        ("http://[::ffff:7f00:1]", Some(E::Forbidden(text("[::ffff:7f00:1]"))), None),
        ("http://169.254.169.254/latest", Some(E::Forbidden(text("169.254.169.254"))), None),
        ("http://169.254.169.254.", Some(E::Forbidden(text("169.254.169.254."))), None),
        ("http://[::ffff:169.254.169.254]", Some(E::Forbidden(text("[::ffff:169.254.169.254]"))), None),
        ("http://[64:ff9b::a9fe:a9fe]", Some(E::Forbidden(text("[64:ff9b::a9fe:a9fe]"))), None),
        ("http://[2002:a9fe:a9fe::1]", Some(E::Forbidden(text("[2002:a9fe:a9fe::1]"))), None),
        ("http://[fd00:ec2::254]", Some(E::Forbidden(text("[fd00:ec2::254]"))), None),
        ("http://[::]", Some(E::Forbidden(text("[::]"))), None),
        // A name of this machine in some hosts' files, which is judged where it leads to.
        ("http://ip6-localhost", None, None),
        ("http://Metadata.Google.Internal.", Some(E::Forbidden(text("Metadata.Google.Internal."))), None),
        ("http://metadata.google.internal", Some(E::Forbidden(text("metadata.google.internal"))), None),
        ("https://kubernetes.example.com", None, None),
        ("https://Kubernetes:6443", Some(E::Forbidden(text("Kubernetes"))), None),
        ("https://kubernetes.default.svc", Some(E::Forbidden(text("kubernetes.default.svc"))), None),
        ("https://kubernetes.default", Some(E::Forbidden(text("kubernetes.default"))), None),
        (
            "https://kubernetes.default.svc.cluster.local",
            Some(E::Forbidden(text("kubernetes.default.svc.cluster.local"))),
            None,
        ),
        ("http://2130706433", Some(E::Host(text("2130706433"))), None),
        ("http://0x7f.1", Some(E::Host(text("0x7f.1"))), None),
        ("http://0X7F000001", Some(E::Host(text("0X7F000001"))), None),
        ("http://0177.0.0.1", Some(E::Host(text("0177.0.0.1"))), None),
        ("http://017700000001", Some(E::Host(text("017700000001"))), None),
        ("http://0", Some(E::Host(text("0"))), None),
        ("http://127.1", Some(E::Host(text("127.1"))), None),
        ("http://1.2.3.4.5", Some(E::Host(text("1.2.3.4.5"))), None),
        ("http://a..b", Some(E::Host(text("a..b"))), None),
        ("http://localhost..", Some(E::Host(text("localhost.."))), None),
        ("https://user:pass@mcp.example.com", Some(E::Credentials), None),
        ("https://mcp.example.com@127.0.0.1", Some(E::Credentials), None),
        ("http://[fe80::1%25eth0]", Some(E::Host(text("[fe80::1%25eth0]"))), None),
        ("ftp://mcp.example.com", Some(E::NotAUrl), None),
        ("//mcp.example.com", Some(E::NotAUrl), None),
        ("mcp.example.com", Some(E::NotAUrl), None),
        ("https://", Some(E::NotAUrl), None),
        ("", Some(E::NotAUrl), None),
        ("https://mcp.example.com:99999", Some(E::Port), None),
        ("https://[2606:4700::1]:65536/mcp", Some(E::Port), None),
        ("https://mcp.example.com:0", Some(E::Port), None),
    ] {
        assert_eq!(check_url(url, true).err(), always, "{url}");
        assert_eq!(check_url(url, false).err(), always.or(without_leave), "{url}");
    }
}

#[test]
fn what_is_exempt_counts_as_public_in_each_form() {
    let policy = EndpointPolicy::new(false, vec!["127.0.0.0/8".parse().unwrap()]);
    for (text, public) in [("127.0.0.1", true), ("::ffff:127.0.0.1", true), ("::1", false), ("10.0.0.1", false)] {
        assert_eq!(policy.allows(address(text)), public, "{text}");
    }
    for (url, allowed) in [
        ("http://localhost:1", true),
        ("http://127.0.0.1:1", true),
        ("http://[::1]:1", false),
        ("http://10.0.0.1:1", false),
    ] {
        assert_eq!(policy.check_url(url).is_ok(), allowed, "{url}");
    }
}

#[test]
fn the_kubernetes_api_is_forbidden_at_its_address_in_each_form_unless_that_is_exempt() {
    let kubernetes_api = Some(address("10.96.0.1"));
    for (reach, exempt, neighbour, api) in [
        (Reach::Public, None, false, false),
        (Reach::Private, None, true, false),
        (Reach::Private, Some("10.96.0.0/16"), true, true),
    ] {
        let exempt_endpoints = exempt.map(|network| network.parse().unwrap()).into_iter().collect();
        let policy = EndpointPolicy { reach, exempt_endpoints, kubernetes_api, egress: None };
        assert_eq!(policy.allows(address("10.96.0.2")), neighbour, "{policy:?}");
        for text in ["10.96.0.1", "::ffff:10.96.0.1"] {
            assert_eq!(policy.allows(address(text)), api, "{policy:?} {text}");
        }
        assert!(!policy.allows(address("64:ff9b::10.96.0.1")), "{policy:?}");
    }
    let policy = EndpointPolicy { kubernetes_api, ..EndpointPolicy::new(true, Vec::new()) };
    let forbidden = Err(EndpointError::Forbidden("10.96.0.1".to_owned()));
    assert_eq!(
        policy.check_url("https://10.96.0.1:443/api"),
        forbidden,
        "leave to call private addresses does not help"
    );
}

#[test]
fn webhooks_may_be_anywhere_but_where_a_cloud_gives_credentials_away() {
    let policy = EndpointPolicy { reach: Reach::AllButMetadata, ..EndpointPolicy::new(true, Vec::new()) };
    for (text, allowed) in [
        ("127.0.0.1", true),
        ("10.0.0.1", true),
        ("fd12::1", true),
        ("169.254.169.254", false),
        ("::ffff:169.254.169.254", false),
        ("fe80::1", false),
        ("100.100.100.200", false),
        ("168.63.129.16", false),
        ("192.0.0.192", false),
        ("fd00:ec2::23", false),
        ("fd20:ce::254", false),
    ] {
        assert_eq!(policy.allows(address(text)), allowed, "{text}");
    }
    assert!(policy.check_url("https://hooks.prod.svc.cluster.local").is_ok());
}

#[test]
fn a_url_is_told_without_what_may_be_a_secret() {
    for (url, told) in [
        ("https://b/login?code=hush#hush", "https://b/login"),
        ("https://b?key=hush/a@b", "https://b"),
        ("https://user:hush@b:1/a/b//c", "https://…@b:1/a/b//c"),
        ("https://user:hu/sh@b", "https://…@b"),
        ("https://b/a#hush@b", "https://b/a"),
        ("//hush@b/x?hush", "//…@b/x"),
        ("/login?next=https://hush@b/", "/login"),
        ("keys?key=hush", "keys"),
        ("mcp/", "mcp/"),
        ("AuthTokenFile", "AuthTokenFile"),
        ("", ""),
    ] {
        assert_eq!(without_secrets(url), told, "{url}");
    }
}

proptest::proptest! {
    #[test]
    fn any_url_and_any_address_are_judged_never_a_panic(
        text in "\\PC{0,40}",
        host in "[0-9a-fx.:\\[\\]%@_-]{0,30}",
        bits: u128,
        v4: u32,
    ) {
        let _ = check_url(&text, false);
        let _ = check_url(&format!("https://{host}/"), true);
        let v4 = Ipv4Addr::from_bits(v4);
        proptest::prop_assert_eq!(class(v4.into()), class(v4.to_ipv6_mapped().into()));
        // What may be called without leave may be called with it.
        let address = Ipv6Addr::from_bits(bits).into();
        let [without, with] = [false, true].map(|leave| EndpointPolicy::new(leave, Vec::new()).allows(address));
        proptest::prop_assert!(with || !without);
    }
}
