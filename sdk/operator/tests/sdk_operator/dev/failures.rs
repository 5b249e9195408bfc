//! Sessions that cannot be, and what they say.

use std::net::{Ipv4Addr, TcpListener};

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_testing::Grant;

use super::fixture::{cluster, configurations, start};
use super::process::{Dev, ENTITIES, command};

#[tokio::test]
async fn all_missing_rights_are_named_before_anything_is_done() {
    let cluster = cluster().await;
    let user = cluster.user_with("ann", &[]).await;
    let error = Dev::start(ENTITIES, &user.kubeconfig, "powerless", &[]).fails().await;
    assert!(
        error.contains(
            "may not list, get, create, delete validatingwebhookconfigurations.admissionregistration.k8s.io; nor list, \
             get, create, delete mutatingwebhookconfigurations.admissionregistration.k8s.io: use one that may"
        ),
        "{error}"
    );
    let rules = [on_configurations(&["list", "get", "create"])];
    let user = cluster.user_with("ann", &[Grant::ClusterRules(&rules)]).await;
    let error = Dev::start(ENTITIES, &user.kubeconfig, "powerless", &[]).fails().await;
    assert!(error.contains("may not delete validatingwebhookconfigurations"), "{error}");
    assert_eq!(configurations(cluster, "powerless").await, [""; 0]);
}

#[tokio::test]
async fn an_unreachable_host_is_reported_and_leaves_nothing_behind() {
    let cluster = cluster().await;
    for (host, reason) in [("nowhere.invalid", "no such host"), ("127.0.0.2", "connection refused")] {
        let error = start(cluster, ENTITIES, "far", &["--host", host]).fails().await;
        let begin = format!("error: the API server cannot call this machine: https://{host}:");
        assert!(error.starts_with(&begin) && error.contains(reason), "{error}");
        assert!(error.contains("--public-url with a tunnel's URL"), "{error}");
        assert_eq!(configurations(cluster, "far").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_used_address_a_lost_cluster_and_bad_flags_are_errors() {
    let cluster = cluster().await;
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let kubeconfig = cluster.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().unwrap();
    for (arguments, expected) in [
        (
            &["--kubeconfig", kubeconfig, "--owner", "a", "--port", &port][..],
            format!("cannot listen on 0.0.0.0:{port}; another --port may be free: Address already in use"),
        ),
        (&["--kubeconfig", kubeconfig], "no user name is known for you: give --owner NAME".to_owned()),
        (&["--kubeconfig", "/none", "--owner", "a"], "cannot use --kubeconfig /none".to_owned()),
        (
            &["--kubeconfig", kubeconfig, "--owner", "a", "--webhooks", "off"],
            "entity-operator has no admission webhooks to serve; its controllers run with: run --webhooks off"
                .to_owned(),
        ),
        (&["--ttl", "25h"], "give at least 1s and at most 24h".to_owned()),
        (&["--public-url", "http://a"], "over HTTPS alone".to_owned()),
        (&["--public-url", "https://a", "--host", "b"], "cannot be used with".to_owned()),
        (&["--ca-file", "a"], "--public-url".to_owned()),
    ] {
        let output = command(ENTITIES, &[&["dev"], arguments].concat()).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(&expected), "{arguments:?}: {said}");
    }
}

pub(crate) fn on_configurations(verbs: &[&str]) -> PolicyRule {
    let resources = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
    PolicyRule {
        api_groups: Some(vec!["admissionregistration.k8s.io".to_owned()]),
        resources: Some(resources.map(str::to_owned).into()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}
