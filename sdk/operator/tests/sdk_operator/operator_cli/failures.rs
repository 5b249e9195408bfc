//! Ends with an error: an exit code, and one line that says what to do.

use std::net::{Ipv4Addr, TcpListener};

use portcullis_testing::ControlPlane;

use super::cluster::{cluster, generate};
use super::process::{Running, command, fails, output};

#[tokio::test]
async fn an_invalid_command_line_is_explained_with_exit_code_2() {
    let long = "a".repeat(64);
    let cases: [(&[&str], &str); 21] = [
        (
            &["run", "--bind", "everywhere"],
            "'everywhere' for '--bind <ADDR>': give an IP address and a port, as in 0.0.0.0:9443",
        ),
        (&["generate", "operator", "--health-bind", "8081"], "'8081' for '--health-bind <ADDR>': give an IP address"),
        (&["run", "--no-such-flag"], "unexpected argument '--no-such-flag'"),
        (&["run", "--log-format", "xml"], "possible values: text, json"),
        (&["run", "--think", "long"], "invalid value 'long' for '--think <THINK>'"),
        (
            &["generate", "rbac", "--namespace", "Bad NS"],
            "invalid value 'Bad NS' for '--namespace <NAMESPACE>': use 1 to 63",
        ),
        (&["generate", "rbac", "--namespace", ""], "'--namespace <NAMESPACE>': use 1 to 63"),
        (&["generate", "rbac", "--namespace", &long], "'--namespace <NAMESPACE>': use 1 to 63"),
        (&["run", "--namespace=-a"], "'--namespace <NAMESPACE>': use 1 to 63"),
        (&["run", "--namespace", "a-"], "'--namespace <NAMESPACE>': use 1 to 63"),
        (
            &["generate", "webhooks", "--service-name", "X_"],
            "invalid value 'X_' for '--service-name <SERVICE_NAME>': use 1",
        ),
        (&["generate", "webhooks", "--service-name", "1a"], "the name of a Service begins with a letter"),
        (&["generate", "webhooks", "--service-port", "0"], "invalid value '0' for '--service-port <SERVICE_PORT>'"),
        (&["generate", "charts"], "possible values: crds, webhooks, policies, rbac"),
        (&["generate", "crds", "--check"], "--out <DIR>"),
        (&["generate", "rbac", "--certificate-secret", "a..b"], "use 1 to 250 lower-case letters, digits, '-' and '.'"),
        (&["generate", "rbac", "--replicas", "2147483648"], "2147483648 is not in 1..=2147483647"),
        (&["certs", "rotate", "--timeout", "25h"], "for '--timeout <DURATION>': give at least 1s and at most 24h"),
        (&["doctor", "--stuck-after", "soon"], "'soon' is no span of time: write it as in 500ms, 5s or 2m"),
        (&["doctor", "--stuck-after", "-1"], "unexpected argument '-1'"),
        (&[], "Usage: controller <COMMAND>"),
    ];
    for (arguments, wanted) in cases {
        let said = fails(arguments, 2).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_wrong_value_from_the_environment_is_said_to_be_from_there() {
    let cases =
        [("WATCH_NAMESPACE", "a,b", "--restrict-to-namespace", "run"), ("POD_NAMESPACE", "A b", "--namespace", "run")];
    for (variable, value, flag, what) in cases {
        let tip = format!("tip: {flag} was not given: the value is that of the environment variable {variable}");
        let said = command("controller", &[what]).env(variable, value).output().await.unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains(&format!("invalid value '{value}' for '{flag} ")) && said.contains(&tip), "{said}");
        let given = command("controller", &[what, flag, value]).env(variable, "fine").output().await.unwrap();
        assert!(!String::from_utf8(given.stderr).unwrap().contains("tip: "));
    }
}

#[tokio::test]
async fn help_names_every_flag_and_the_version_is_the_operators() {
    let help = String::from_utf8(output(&["run", "--help"]).await.stdout).unwrap();
    for flag in ["--kubeconfig", "--namespace", "--service-name", "--bind", "--health-bind", "--log", "--forbid"] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    let version = String::from_utf8(output(&["--version"]).await.stdout).unwrap();
    assert_eq!(version, format!("entity-operator {}\n", env!("CARGO_PKG_VERSION")));
}

fn is_one_line(said: &str, beginning: &str) {
    assert!(said.starts_with(beginning), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_one_line_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("missing", None), ("broken", Some("{ not: [yaml")), ("empty", Some("")), ("odd", Some("contexts: 7\n"))]
    {
        let path = folder.path().join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let said = fails(&["run", "--kubeconfig", path.to_str().unwrap()], 1).await;
        is_one_line(&said, &format!("error: cannot use --kubeconfig {}: ", path.display()));
    }
    is_one_line(&fails(&["run"], 1).await, "error: no cluster found; give --kubeconfig FILE: ");
    is_one_line(
        &fails(&["run", "--log", "portcullis=loudly"], 1).await,
        "error: --log 'portcullis=loudly' is not a filter; ",
    );
}

#[tokio::test]
async fn a_port_in_use_is_one_line_that_names_the_flag() {
    let kubeconfig = ControlPlane::shared().await.kubeconfig_path();
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = held.local_addr().unwrap().to_string();
    for (flag, other) in [("--bind", "--health-bind"), ("--health-bind", "--bind")] {
        let arguments =
            ["run", "--log", "off", "--kubeconfig", kubeconfig.to_str().unwrap(), flag, &address, other, "127.0.0.1:0"];
        let said = fails(&arguments, 1).await;
        is_one_line(&said, &format!("error: cannot listen on {flag} {address}: Address already in use"));
    }
}

// The controller's first list is refused.
#[tokio::test]
async fn a_controller_that_fails_ends_the_process_with_its_error() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("op").await;
    let mut rights = generate(&["rbac", "--namespace", &namespace, "--release", &namespace]).await;
    for rules in rights.iter_mut().filter_map(|role| role.get_mut("rules")?.as_array_mut()) {
        rules.retain(|rule| !rule.to_string().contains("entities"));
    }
    let user = cluster.user_from_manifests(&rights).await;
    let kubeconfig = user.kubeconfig.to_str().unwrap().to_owned();
    let place = ["--namespace", &namespace, "--release", &namespace];
    let mut running = Running::start(&[&["--kubeconfig", &*kubeconfig], &place[..]].concat());
    assert_eq!(running.ended().await.code(), Some(1), "{}", running.log());
    is_one_line(
        &running.last_line().await,
        "error: controller greeter failed: cannot list entities; is the CRD installed?: ",
    );
}

#[tokio::test]
async fn every_error_about_a_lost_api_server_names_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = "{ current-context: a, clusters: [{ name: a, cluster: { server: 'http://127.0.0.1:1' } }], \
                contexts: [{ name: a, context: { cluster: a, user: a } }], users: [{ name: a, user: {} }] }";
    std::fs::write(&kubeconfig, text).unwrap();
    let running = Running::start(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "a"]);
    running.logged("no certificates yet").await;
    let (status, body) = running.health("/readyz").await;
    assert_eq!(status, 503, "{body}");
    let log = running.log();
    let complaints: Vec<&str> = log.lines().filter(|line| !line.contains("\"level\":\"INFO\"")).collect();
    let why = "the API server at http://127.0.0.1:1/ does not answer: connection refused";
    assert!(!complaints.is_empty() && complaints.iter().all(|line| line.contains(why)), "{log}");
    assert!(body.starts_with("waiting for certificates: ") && body.contains(why), "{body}");
    running.kill().await;
}
