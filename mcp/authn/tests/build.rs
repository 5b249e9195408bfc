//! Which logins start: a bad document stops the start, with the member named and the fix.

#![allow(clippy::unwrap_used, reason = "clippy's own exception ends at functions marked as tests")]

use std::sync::Arc;

use futures::FutureExt as _;

use mcp_middleware::{BuildError, Chain, ProxySettings, Registry};
use mcp_runconfig::MiddlewareConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

fn build(files: &TempDir, entries: &Value) -> Result<Chain, BuildError> {
    let mut registry = Registry::default();
    mcp_authn::register(&mut registry);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut settings = ProxySettings::new(([127, 0, 0, 1], 8080).into(), provider);
    settings.files_root = Some(files.path().to_owned());
    let entries = entries.as_array().unwrap();
    let configs: Vec<_> = entries.iter().map(|parameters| MiddlewareConfig::new("auth", parameters.clone())).collect();
    registry.build(&configs, settings).now_or_never().unwrap()
}

fn files() -> TempDir {
    let files = TempDir::new().unwrap();
    for (name, content) in [("token", "secret\n"), ("blank", " \n"), ("environ", "A=secret\0B=2\0"), ("no.crt", "x")] {
        std::fs::write(files.path().join(name), content).unwrap();
    }
    files
}

#[tokio::test]
async fn a_login_that_would_not_guard_stops_the_start_with_its_member() {
    let files = files();
    let oidc = |change: Value| {
        let mut oidc = json!({"Issuer": "https://idp.example", "Audience": "mcp"});
        oidc.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!([{"oidc_config": oidc}])
    };
    for (entries, member, problem) in [
        (json!([{"oidc_config": {}}]), ".oidc_config.Issuer", "and JWKSURL are empty"),
        (json!([{"oidc_config": {"ResourceURL": "https://mcp"}}]), ".oidc_config.Issuer", "and JWKSURL are empty"),
        (oidc(json!({"Audience": ""})), ".oidc_config.Audience", "is empty"),
        (oidc(json!({"Audience": " "})), ".oidc_config.Audience", "is empty"),
        (oidc(json!({"Issuer": "http://idp.example"})), ".oidc_config.Issuer", "is not https"),
        (oidc(json!({"Issuer": "idp.example"})), ".oidc_config.Issuer", "is no"),
        (oidc(json!({"Issuer": "https://user:pw@idp.example"})), ".oidc_config.Issuer", "has a user name"),
        (oidc(json!({"JWKSURL": "ftp://idp.example"})), ".oidc_config.JWKSURL", "is neither https nor http"),
        (oidc(json!({"IntrospectionURL": "http://idp.example"})), ".IntrospectionURL", "is not https"),
        (oidc(json!({"CACertPath": "/none"})), ".oidc_config.CACertPath", "/none cannot be read"),
        (oidc(json!({"CACertPath": "/no.crt"})), ".oidc_config.CACertPath", "no PEM certificate"),
        (oidc(json!({"CACertPath": "no.crt"})), ".oidc_config.CACertPath", "is not an absolute path"),
        (oidc(json!({"AuthTokenFile": "/none"})), ".oidc_config.AuthTokenFile", "/none cannot be read"),
        (oidc(json!({"AuthTokenFile": "/blank"})), ".oidc_config.AuthTokenFile", "is blank"),
        (oidc(json!({"AuthTokenFile": "/environ"})), ".oidc_config.AuthTokenFile", "holds no token"),
        (json!([{"OIDC_CONFIG": null, "oidc_config": {}}]), ".oidc_config", "is the same member"),
        (json!([[]]), "[0].parameters", "is a list"),
        (json!([{}, {}]), "[1].type", "stands in the chain twice"),
    ] {
        let error = build(&files, &entries).unwrap_err();
        assert!(error.field.ends_with(member) && error.problem.contains(problem), "{entries}: {error}");
        assert!(!error.fix.is_empty() && !error.to_string().contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_login_starts_whether_or_not_its_provider_is_there() {
    for parameters in [
        json!({}),
        Value::Null,
        json!({"oidc_config": null}),
        json!({"oidc_config": {"Issuer": "https://nowhere.example", "Audience": "mcp", "AuthTokenFile": "/token"}}),
        json!({"OIDC_Config": {"jwksurl": "https://10.0.0.1/keys", "audience": "mcp"}}),
        json!({"oidc_config": {"Issuer": "http://localhost", "Audience": "mcp", "InsecureAllowHTTP": true}}),
    ] {
        assert!(build(&files(), &json!([parameters])).is_ok(), "{parameters}");
    }
}

// Security S7: whoever answers as the provider gets what is in that file.
#[tokio::test]
async fn no_provider_is_shown_a_file_that_is_not_for_it() {
    const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let files = files();
    let place = |path: &str| files.path().join(path.trim_start_matches('/'));
    let own = ["/etc/runconfig/token", "/etc/toolhive/webhooks/a/hmac", "/config/certs/a/ca.crt"];
    for path in own.iter().chain([&*format!("{ACCOUNT}/..data/token"), "/mine/token"].iter()) {
        std::fs::create_dir_all(place(path).parent().unwrap()).unwrap();
        std::fs::write(place(path), "secret").unwrap();
    }
    let link = |path: &str, to: &str| std::os::unix::fs::symlink(to, place(path)).unwrap();
    link(&format!("{ACCOUNT}/token"), "..data/token");
    link("/link", "var/run/secrets/kubernetes.io/serviceaccount/token");
    link("/mine/account", "../var/run/secrets/kubernetes.io/serviceaccount");
    link("/mine/own", "../etc/runconfig");
    link("/mine/process", "/proc/self/cmdline");
    link("/mine/good", "token");
    let refused = ["/proc/self/root/token", "/proc/self/cwd/x", "/sys/kernel/notes", "/dev/stdin", "/link"];
    let links = ["/mine/account/token", "/mine/own/token", "/mine/process", "/mine/../link", "/mine/../proc/x"];
    let build = |path: &str| {
        let oidc = json!({"Issuer": "https://idp.example", "Audience": "mcp", "AuthTokenFile": path});
        build(&files, &json!([{"oidc_config": oidc}]))
    };
    for path in refused.iter().chain(&links).chain(&own) {
        let error = build(path).unwrap_err();
        assert!(error.field.ends_with("AuthTokenFile"), "{path}: {error}");
        assert!(error.problem.contains("no provider may see"), "{path}: {error}");
    }
    // The second is the operator's for the Kubernetes API as the provider.
    for path in ["/mine/good", &format!("{ACCOUNT}/token")] {
        assert!(build(path).is_ok(), "{path}");
    }
}
