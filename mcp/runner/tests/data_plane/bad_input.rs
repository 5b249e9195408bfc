//! What cannot be served ends with exit code 1 and one line that names file, field and fix.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::support::document;

/// Runs the binary to its end; its exit code and what it said.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-runner"))
        .arg("run")
        .args(arguments)
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_document_that_cannot_be_served_is_refused_in_one_line_that_names_file_field_and_fix() {
    let http = |members| document("streamable-http", &members);
    let chain = |entry: serde_json::Value| http(json!({"middleware_configs": [entry]}));
    let webhook = |members: serde_json::Value| {
        let mut webhook = json!({"name": "w", "url": "https://hook.example", "timeout": 0, "failure_policy": "fail"});
        webhook.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let parameters = json!({"webhooks": [webhook], "server_name": "demo", "transport": "streamable-http"});
        http(json!({"middleware_configs": [
            {"type": "mcp-parser", "parameters": {}},
            {"type": "validating-webhook", "parameters": parameters},
        ]}))
    };
    let table: Vec<(&str, String, &[&str], &[&str])> = vec![
        ("not JSON", "{".into(), &[], &["document", "is not JSON", "write one JSON object"]),
        ("not an object", "[]".into(), &[], &["document", "write one JSON object"]),
        (
            "a ConfigMap",
            json!({"kind": "ConfigMap", "data": {"runconfig.json": http(json!({"port": "8080"}))}}).to_string(),
            &[],
            &["data.runconfig.json: port: is a string"],
        ),
        (
            "a ConfigMap in YAML",
            format!("kind: ConfigMap\ndata:\n  runconfig.json: '{}'\n", http(json!({"remote_url": "far.example"}))),
            &[],
            &["remote_url: is not a URL"],
        ),
        (
            "a ConfigMap of another",
            r#"{"kind":"ConfigMap","data":{}}"#.into(),
            &[],
            &["data.runconfig.json", "<server>-runconfig"],
        ),
        ("wrong type", http(json!({"port": "8080"})), &[], &["port: is a string", "write an integer"]),
        ("no transport", document("", &json!({})), &[], &["transport: is missing", "streamable-http"]),
        ("unknown middleware", chain(json!({"type": "teleport"})), &[], &["middleware_configs[0].type", "teleport"]),
        ("not built yet", chain(json!({"type": "upstreamswap"})), &[], &["middleware_configs[0].type", "upstreamswap"]),
        (
            "roles of AWS without any",
            chain(json!({"type": "awssts"})),
            &[],
            &["middleware_configs[0].parameters.aws_sts_config", "is missing"],
        ),
        ("bad parameter", chain(json!({"type": "bodylimit", "parameters": {"max_bytes": "8"}})), &[], &["max_bytes"]),
        (
            "no secret",
            webhook(json!({"hmac_secret_ref": "/nowhere/secret"})),
            &[],
            &["hmac_secret_ref", "/nowhere/secret"],
        ),
        (
            "no CA",
            webhook(json!({"tls_config": {"ca_bundle_path": "/nowhere/ca.crt"}})),
            &[],
            &["ca_bundle_path", "/nowhere/ca.crt"],
        ),
        (
            "guard left out",
            http(json!({"middleware_configs": [], "upstream_swap_config": {}})),
            &[],
            &["upstream_swap_config", "remove it"],
        ),
        (
            "guard in another case",
            http(json!({"middleware_configs": [], "Upstream_Swap_Config": {}})),
            &[],
            &["Upstream_Swap_Config", "remove it"],
        ),
        (
            "limits without Redis",
            http(
                json!({"middleware_configs": [], "rate_limit_config": {"shared": {"maxTokens": 1, "refillPeriod": "1s"}}}),
            ),
            &[],
            &["scaling_config.session_redis.address", "is missing", "the Redis that counts"],
        ),
        (
            "limits that a chain leaves out",
            http(json!({"rate_limit_config": {"shared": {"maxTokens": 1, "refillPeriod": "1s"}}})),
            &[],
            &["rate_limit_config", "has no effect", "add ratelimit there"],
        ),
        (
            "guard with its defaults",
            http(json!({"middleware_configs": [], "authz_config": {}})),
            &[],
            &["authz_config.cedar", "is missing", "write the policies there"],
        ),
        (
            "member twice",
            http(json!({})).replacen('{', r#"{"middleware_configs":[{"type":"teleport"}],"#, 1),
            &[],
            &["document", "duplicate member `middleware_configs`", "name each member once"],
        ),
        (
            "member in two cases",
            http(json!({"Middleware_Configs": []})),
            &[],
            &["Middleware_Configs", "the same member", "keep one"],
        ),
        ("line breaks", chain(json!({"type": "tele\nport\r"})), &[], &["tele port"]),
        (
            "second webhook",
            http(json!({"middleware_configs": [
                {"type": "mcp-parser"},
                {"type": "validating-webhook", "parameters": {"webhooks": [
                    {"name": "w", "url": "http://hook.example", "failure_policy": "fail", "tls_config": {"insecure_skip_verify": true}},
                    {"name": "v", "url": "https://hook.example", "failure_policy": "fail", "hmac_secret_ref": "/nowhere/secret"},
                ]}},
            ]})),
            &[],
            &["webhooks[1].hmac_secret_ref", "/nowhere/secret"],
        ),
        ("attach", document("stdio", &json!({})), &[], &["cannot reach the MCP server", "in a pod", "KUBECONFIG"]),
        (
            "remote over SSE on this machine",
            document("sse", &json!({"remote_url": "https://127.0.0.1/sse"})),
            &[],
            &["remote_url", "127.0.0.1"],
        ),
        ("remote, no URL", http(json!({"remote_url": "far.example/mcp"})), &[], &["remote_url: is not a URL"]),
        (
            "remote on this machine",
            http(json!({"remote_url": "https://localhost:1/", "portcullis": {"allow_private_endpoint": true}})),
            &[],
            &["remote_url: host \"localhost\"", "name another server, or see --allow-endpoint-cidr"],
        ),
        (
            "open paths of a server behind a pipe",
            document("stdio", &json!({"portcullis": {"open_paths": ["/docs"]}})),
            &["--", "true"],
            &["portcullis.open_paths", "a server behind a pipe serves MCP alone"],
        ),
        (
            "paths that the server's URL replaces",
            http(json!({"portcullis": {"mcp_paths": ["/a"]}})),
            &["--backend", "http://127.0.0.1:1/p"],
            &["portcullis.mcp_paths", "replaces every other"],
        ),
        (
            "a filter beside a chain without it",
            http(json!({"tools_filter": ["echo"], "middleware_configs": [{"type": "mcp-parser", "parameters": {}}]})),
            &[],
            &["tools_filter", "middleware_configs", "tool-filter"],
        ),
        (
            "webhooks beside a chain without them",
            http(json!({
                "validating_webhooks": [{"name": "w", "url": "https://127.0.0.1:1", "timeout": 0, "failure_policy": "fail"}],
                "middleware_configs": [{"type": "mcp-parser", "parameters": {}}],
            })),
            &[],
            &["validating_webhooks", "has no effect", "validating-webhook"],
        ),
        (
            "no origin",
            http(json!({"allowed_origins": ["null"]})),
            &[],
            &["allowed_origins", "\"null\"", "https://app.example"],
        ),
        (
            "every address is a proxy",
            http(json!({"portcullis": {"trusted_proxies": ["0.0.0.0/0"]}})),
            &[],
            &["portcullis.trusted_proxies", "\"0.0.0.0/0\"", "any address"],
        ),
        (
            "no network",
            http(json!({"portcullis": {"trusted_proxies": ["10.0.0.1"]}})),
            &[],
            &["portcullis.trusted_proxies", "\"10.0.0.1\"", "10.0.0.0/8"],
        ),
        ("no path", http(json!({"portcullis": {"mcp_paths": ["/a b"]}})), &[], &["portcullis.mcp_paths", "\"/a b\""]),
        (
            "an open path of MCP",
            http(json!({"portcullis": {"open_paths": ["/mcp/*"]}})),
            &[],
            &["portcullis.open_paths", "covers /mcp"],
        ),
        (
            "an addition of another version",
            http(json!({"portcullis": {"newer": true}})),
            &[],
            &["portcullis.newer", "not known to this proxy"],
        ),
        (
            "remote in a private network",
            http(json!({"remote_url": "https://10.0.0.1/"})),
            &["--allow-endpoint-cidr", "127.0.0.0/8,192.168.0.0/16"],
            &["remote_url: host \"10.0.0.1\" is in a private network", "spec.allowPrivateEndpoint"],
        ),
        (
            "a header that is the proxy's own",
            http(
                json!({"remote_url": "https://far.example", "header_forward": {"add_plaintext_headers": {"Host": "x"}}}),
            ),
            &[],
            &["header_forward.add_plaintext_headers.Host", "remove it"],
        ),
        (
            "the header of the proxy's own token",
            http(json!({
                "remote_url": "https://far.example", "remote_auth_config": {"bearer_token": "s3cr3t"},
                "header_forward": {"add_plaintext_headers": {"Authorization": "Bearer other"}},
            })),
            &[],
            &["header_forward.add_plaintext_headers.Authorization", "oauth-token-injection", "remove it"],
        ),
        (
            "a header from a secret without a provider",
            http(
                json!({"remote_url": "https://far.example", "header_forward": {"add_headers_from_secret": {"X-Key": "ID"}}}),
            ),
            &[],
            &["header_forward.add_headers_from_secret.X-Key", "TOOLHIVE_SECRETS_PROVIDER=environment"],
        ),
        (
            "sessions in a Redis without a port",
            http(json!({"scaling_config": {"session_redis": {"address": "redis"}}})),
            &[],
            &["scaling_config.session_redis.address: ", "redis.example.svc:6379"],
        ),
        (
            "keys of sessions without a colon",
            http(json!({"scaling_config": {"session_redis": {"address": "redis:6379", "key_prefix": "mine"}}})),
            &[],
            &["scaling_config.session_redis.key_prefix: ", "end with a colon"],
        ),
        (
            "a relative CA of Redis",
            http(
                json!({"scaling_config": {"session_redis": {"address": "redis:6379", "tls": {"caCertFile": "ca.crt"}}}}),
            ),
            &[],
            &["scaling_config.session_redis.tls.caCertFile: ", "begins with /"],
        ),
        (
            "a login that names nothing",
            http(json!({"remote_auth_config": {}})),
            &[],
            &["remote_auth_config", "names no token"],
        ),
        (
            "a login in a browser",
            http(json!({"remote_auth_config": {"client_id": "c", "authorize_url": "https://idp.example/authorize"}})),
            &[],
            &["remote_auth_config.authorize_url", "in a browser", "client credentials"],
        ),
        (
            "a port for a browser",
            http(json!({"remote_auth_config": {"client_id": "c", "callback_port": 8666}})),
            &[],
            &["remote_auth_config.callback_port", "in a browser"],
        ),
        (
            "a login of PKCE",
            http(json!({"remote_auth_config": {"client_id": "c", "use_pkce": true}})),
            &[],
            &["remote_auth_config.use_pkce", "in a browser"],
        ),
        (
            "a client that is not registered",
            http(json!({"remote_auth_config": {"issuer": "https://idp.example"}})),
            &[],
            &["remote_auth_config.client_id", "does not register itself"],
        ),
        (
            "a client without a secret",
            http(json!({"remote_auth_config": {"client_id": "c", "token_url": "https://idp.example/token"}})),
            &[],
            &["remote_auth_config.client_secret_file", "is missing"],
        ),
        (
            "a client without a provider",
            http(
                json!({"remote_auth_config": {"client_id": "c", "client_secret": "s", "issuer": "https://idp.example"}}),
            ),
            &[],
            &["remote_auth_config.token_url", "token endpoint"],
        ),
        (
            "a client with two secrets",
            http(json!({"remote_auth_config": {"client_id": "c", "client_secret": "s", "client_secret_file": "/s"}})),
            &[],
            &["remote_auth_config.client_secret_file", "keep one"],
        ),
        (
            "a secret that is not there",
            http(json!({"remote_auth_config": {"client_id": "c", "client_secret_file": "/nowhere/s"}})),
            &[],
            &["remote_auth_config.client_secret_file", "cannot be read"],
        ),
        (
            "a secret that is a line break",
            http(json!({"remote_auth_config": {"client_id": "c", "client_secret": "\n"}})),
            &[],
            &["remote_auth_config.client_secret", "is blank", "name a secret"],
        ),
        (
            "a token that names no secret",
            http(json!({"remote_auth_config": {"bearer_token": ",target=bearer_token"}})),
            &[],
            &["remote_auth_config.bearer_token", "secret"],
        ),
        (
            "a token beside a client",
            http(json!({"remote_auth_config": {"bearer_token": "t", "token_url": "https://idp.example/token"}})),
            &[],
            &["remote_auth_config.token_url", "there is one already", "keep the token"],
        ),
        (
            "a parameter with a member",
            http(json!({"remote_auth_config": {"client_id": "c", "oauth_params": {"grant_type": "password"}}})),
            &[],
            &["remote_auth_config.oauth_params[grant_type]", "remove it"],
        ),
        (
            "a token for no remote server",
            http(json!({"remote_auth_config": {"bearer_token": "t"}})),
            &[],
            &["remote_auth_config", "without remote_url"],
        ),
        ("no port", http(json!({"target_port": 0})), &[], &["target_port: is missing", "--backend URL"]),
        ("https backend", http(json!({})), &["--backend", "https://x"], &["--backend", "http://"]),
        ("backend no URL", http(json!({})), &["--backend", "x y"], &["--backend", "is not a URL"]),
        (
            "no such command",
            document("stdio", &json!({})),
            &["--", "/nowhere/server"],
            &["/nowhere/server", "mend the command"],
        ),
        (
            "bad address",
            http(json!({})),
            &["--listen", "256.0.0.1:1"],
            &["cannot listen on 256.0.0.1:1", "--listen ADDR"],
        ),
    ];
    for (case, document, more, said) in table {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("runconfig.json");
        std::fs::write(&file, document).unwrap();
        let file = file.to_str().unwrap();
        let mut arguments = vec!["--config", file, "img"];
        // Any free port: one that is chosen before may be taken by then.
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        let (code, stderr) = run(directory.path(), &arguments);
        assert_eq!(code, Some(1), "{case}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{case}: {stderr}");
        let names_file = !more.iter().any(|flag| matches!(*flag, "--backend" | "--listen"))
            && !matches!(case, "no such command" | "attach");
        for text in said.iter().copied().chain(names_file.then_some(file)) {
            assert!(stderr.contains(text), "{case}: {text:?} is not in {stderr:?}");
        }
    }
}

#[test]
fn a_missing_or_unreadable_document_is_named() {
    let directory = TempDir::new().unwrap();
    let (code, stderr) = run(directory.path(), &["--config", "/nowhere/runconfig.json"]);
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("/nowhere/runconfig.json: cannot be read") && stderr.contains("--config FILE"), "{stderr}");
    // A directory can be opened and not read.
    let (code, stderr) = run(directory.path(), &["--config", "/"]);
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    let (code, stderr) = run(directory.path(), &[]);
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    for place in ["/etc/runconfig/runconfig.json", "/etc/toolhive/runconfig.json", "./runconfig.json", "--config FILE"]
    {
        assert!(stderr.contains(place), "{stderr}");
    }
}

#[test]
fn a_document_without_end_is_given_up() {
    let (code, stderr) = run(Path::new("/"), &["--config", "/dev/zero"]);
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("/dev/zero: cannot be read: it is larger than 4 MiB"), "{stderr}");
}

#[test]
fn without_a_flag_the_document_in_the_working_directory_is_read() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("runconfig.json"), "{").unwrap();
    let (code, stderr) = run(directory.path(), &["image"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("./runconfig.json: document: is not JSON"), "{stderr}");
}

#[test]
fn a_flag_that_asks_for_a_guard_stops_the_start_and_says_where_guards_are_asked_for() {
    let directory = TempDir::new().unwrap();
    let (usage, stderr) = run(directory.path(), &["img", "--drain-delay", "soon"]);
    assert_eq!(usage, Some(2), "{stderr}");
    for flag in ["--oidc-issuer=https://idp.example", "--authz-config", "--tools"] {
        let (code, stderr) = run(directory.path(), &["img", flag, "value"]);
        let name = flag.split('=').next().unwrap_or_default();
        assert_eq!(code, usage, "as any bad command line: {flag}: {stderr}");
        assert!(stderr.contains(name) && stderr.contains("in the RunConfig alone"), "{flag}: {stderr}");
    }
}

#[test]
fn the_kubernetes_api_is_no_remote_server_at_its_address_either() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("runconfig.json");
    let members = json!({"remote_url": "https://10.96.0.1/api", "portcullis": {"allow_private_endpoint": true}});
    std::fs::write(&path, document("streamable-http", &members)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-runner"))
        .args(["run", "--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()])
        .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains(r#"remote_url: host "10.96.0.1" is"#) && log.contains("the Kubernetes API"), "{log}");
}

/// The ConfigMap of an old pod may be newer than the pod: what it says it enforces must be what it runs on.
#[test]
fn a_proxy_does_not_start_on_another_document_than_the_one_its_pod_was_made_for() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("runconfig.json");
    // With its document, it starts and finds what else is wrong with it.
    std::fs::write(&path, "{").unwrap();
    let checksum = "021fb596db81e6d02bf3d2586ee3981fe519f275c0ac9ca76bbcf2ebb4097d96";
    let another = "is not the RunConfig that this pod was made for";
    for (expected, said) in [(checksum, "is not JSON"), ("0000", another), ("", another)] {
        let output = Command::new(env!("CARGO_BIN_EXE_mcp-runner"))
            .args(["run", "--config", path.to_str().unwrap()])
            .env("TOOLHIVE_RUNCONFIG_CHECKSUM", expected)
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), log.contains(said), log.lines().count()), (Some(1), true, 1), "{log}");
    }
}
