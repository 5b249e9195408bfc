//! Variables that decide for a proxy, in a pod and elsewhere.

use std::collections::BTreeMap;

use serde_json::json;

use super::support::Runner;

/// The environment of the runner that was started with these variables.
async fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    environment_of(&Runner::http_with("http://127.0.0.1:9", &json!({}), variables).await)
}

fn environment_of(runner: &Runner) -> BTreeMap<String, String> {
    let bytes = std::fs::read(format!("/proc/{}/environ", runner.pid())).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.split('\0').filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

// Security S15: an author's variable said whom webhooks are told of, whom the proxy trusts, and where the Kubernetes API is.
#[tokio::test]
async fn a_users_variable_decides_nothing_for_a_proxy_in_a_pod() {
    let deciding = [
        ("USER", "admin"),
        ("SSL_CERT_FILE", "/mine/ca.crt"),
        ("SSL_CERT_DIR", "/mine"),
        ("LD_LIBRARY_PATH", "/mine"),
        ("KUBECONFIG", "/mine/config"),
        ("HTTPS_PROXY", "http://mine:1"),
        ("no_proxy", "*"),
        ("HOME", "/mine"),
    ];
    let free = [("TOOLHIVE_DEBUG", "true"), ("TZ", "UTC"), ("KUBERNETES_SERVICE_PORT", "443")];
    let outside = [&deciding[..], &free].concat();
    let in_pod = [&outside[..], &[("KUBERNETES_SERVICE_HOST", "10.96.0.1")]].concat();
    for (given, is_pod) in [(&outside, false), (&in_pod, true)] {
        let found = environment(given).await;
        for (name, value) in &deciding {
            let expected = match *name {
                "HOME" if is_pod => Some("/tmp"),
                _ if is_pod => None,
                _ => Some(*value),
            };
            assert_eq!(found.get(*name).map(String::as_str), expected, "{name} {is_pod}");
        }
        for (name, value) in free {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name} {is_pod}");
        }
    }
}

#[tokio::test]
async fn the_roots_of_the_installation_are_trusted_in_and_out_of_a_pod() {
    let pod = ("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    for variables in [&[pod][..], &[pod, ("SSL_CERT_FILE", "/mine")], &[("SSL_CERT_FILE", "/mine")], &[]] {
        let arguments = ["--backend", "http://127.0.0.1:9", "--ca-bundle=/etc/roots.crt"].map(Into::into);
        let runner = Runner::start("streamable-http", &json!({}), &arguments, variables).await;
        assert_eq!(environment_of(&runner)["SSL_CERT_FILE"], "/etc/roots.crt", "{variables:?}");
    }
}
