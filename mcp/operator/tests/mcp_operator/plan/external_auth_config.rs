//! The credential of requests to a server: which pair of type and workload works, what is made of it, and what a change does.

use mcp_api::v1beta1::{MCPExternalAuthConfig, MCPRemoteProxy, VirtualMCPServer};
use mcp_operator::{
    subject::Subject as _,
    workload::{Workload, checks::advice},
};
use mcp_plan::{config::Configs, workload::ChildKind};
use mcp_runconfig::TOKEN_EXCHANGE;
use serde_json::{Value, json};

use super::{
    config_plan,
    world::{
        Plan, World, condition, deployment, external_auth_config, guards, inline, is_absent, oidc_config, run_config,
    },
};
use crate::support::{auth_server, exchange};

const ROLE: &str = "arn:aws:iam::123456789012:role/ops";
const IDLE: &str = "is used by a VirtualMCPServer only; this proxy sends no credential";

/// A spec of each type.
pub(super) fn spec(kind: &str) -> Value {
    let secret = json!({"name": "s", "key": "k"});
    match kind {
        "tokenExchange" => exchange(json!({"clientId": "proxy", "clientSecretRef": secret})),
        "headerInjection" => json!({"type": kind, kind: {"headerName": "X-Key", "valueSecretRef": secret}}),
        "bearerToken" => json!({"type": kind, kind: {"tokenSecretRef": secret}}),
        "unauthenticated" => json!({"type": kind}),
        "embeddedAuthServer" => auth_server(),
        "awsSts" => json!({"type": kind, kind: {"region": "eu-central-1", "fallbackRoleArn": ROLE}}),
        "upstreamInject" => json!({"type": kind, kind: {"providerName": "idp"}}),
        "obo" => json!({"type": kind, kind: {}}),
        "xaa" => json!({"type": kind, kind: {
            "idpTokenUrl": "https://idp.example.com/token", "targetTokenUrl": "https://target.example.com/token",
            "targetAudience": "https://target.example.com",
        }}),
        _ => panic!("{kind} is no type"),
    }
}

/// A world around a workload that refers to a credential of this type.
pub(super) fn around<W: Workload<Status: Clone>>(workload: &str, spec_of_workload: Value, kind: &str) -> World<W> {
    let mut world = World::<W>::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": workload,
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3},
        "spec": spec_of_workload,
    }));
    world.has(external_auth_config("credential", spec(kind)));
    world.secret("s", "k", "hunter2");
    world
}

pub(super) fn server(kind: &str) -> World {
    around("MCPServer", server_spec(json!({"externalAuthConfigRef": {"name": "credential"}})), kind)
}

pub(super) fn server_spec(change: Value) -> Value {
    let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    spec
}

pub(super) fn proxy(kind: &str) -> World<MCPRemoteProxy> {
    let spec = json!({
        "remoteUrl": "https://mcp.example.com/mcp", "externalAuthConfigRef": {"name": "credential"},
        "oidcConfigRef": {"name": "idp", "audience": "a"},
    });
    let mut world = around("MCPRemoteProxy", spec, kind);
    world.has(oidc_config("idp", inline(json!({}))));
    world
}

fn group(kind: &str) -> World<VirtualMCPServer> {
    let credential = json!({"type": "externalAuthConfigRef", "externalAuthConfigRef": {"name": "credential"}});
    let spec = json!({
        "groupRef": {"name": "g"}, "incomingAuth": {"type": "anonymous"}, "outgoingAuth": {"default": credential},
    });
    around("VirtualMCPServer", spec, kind)
}

/// The condition, what it says, and the member of the document that has the credential.
pub(super) fn outcome<W: Workload<Status: Clone>>(world: &World<W>) -> (String, String, Option<&'static str>) {
    let plan = world.plan();
    let found = plan.conditions.iter().find(|it| it.type_ == "ExternalAuthConfigValidated").unwrap();
    let members = ["token_exchange_config", "remote_auth_config", "aws_sts_config"];
    let document = plan.children.iter().find(|child| child.reference.kind == ChildKind::ConfigMap);
    let document = document.map(|map| map.object["data"]["runconfig.json"].as_str().unwrap());
    let member = document.and_then(|text| members.into_iter().find(|member| text.contains(member)));
    let said = found.message.strip_prefix("MCPExternalAuthConfig \"credential\" ").unwrap();
    (format!("{}/{}", found.status, found.reason), said.to_owned(), member)
}

/// toolhive-auth §3.1: no pair is silent.
#[test]
fn each_pair_of_type_and_workload_is_sent_idle_or_refused() {
    let sent = |member: &'static str| ("True/ExternalAuthConfigValid", "is valid", Some(member));
    let known = ("True/ExternalAuthConfigValid", "is valid", None);
    let idle = ("True/ExternalAuthConfigValid", IDLE, None);
    let never = |words: &'static str| ("False/InvalidConfig", words, None);
    let obo = ("False/EnterpriseRequired", "type obo", None);
    let server_of_auth = never("is an authorization server, which this version does not run");
    let without_login = ("True/ExternalAuthConfigValid", "without spec.oidcConfigRef", Some("token_exchange_config"));
    for (kind, of_server, of_proxy, of_group) in [
        ("tokenExchange", without_login, sent("token_exchange_config"), known),
        ("headerInjection", idle, idle, known),
        (
            "bearerToken",
            never("MCPRemoteProxy"),
            sent("remote_auth_config"),
            never("unsupported auth type bearerToken"),
        ),
        ("unauthenticated", idle, idle, known),
        ("embeddedAuthServer", server_of_auth, server_of_auth, never("spec.authServerConfig")),
        ("awsSts", never("requires a remote URL"), sent("aws_sts_config"), known),
        ("upstreamInject", idle, idle, known),
        ("obo", obo, obo, obo),
        ("xaa", idle, idle, known),
    ] {
        let found = [outcome(&server(kind)), outcome(&proxy(kind)), outcome(&group(kind))];
        for ((condition, said, member), expected) in found.iter().zip([of_server, of_proxy, of_group]) {
            assert_eq!((&**condition, *member), (expected.0, expected.2), "{kind}: {said}");
            assert!(said.contains(expected.1), "{kind}: {said}");
        }
    }
}

#[test]
fn roles_by_claims_need_a_login() {
    let mut world = proxy("awsSts");
    world.workload.spec.oidc_config_ref = None;
    let (condition, said, member) = outcome(&world);
    assert_eq!((&*condition, member), ("False/InvalidConfig", None));
    assert!(said.contains("set spec.oidcConfigRef"), "{said}");
    assert!(told(&world)[0].contains("set spec.oidcConfigRef"));
}

#[test]
fn one_token_for_all_is_told_of_where_nobody_logs_in() {
    let mut world = proxy("bearerToken");
    world.workload.spec.oidc_config_ref = None;
    let shared = "sends one token for every caller, and without spec.oidcConfigRef whoever reaches the proxy's Service";
    let (condition, said, member) = outcome(&world);
    assert_eq!((&*condition, member), ("True/ExternalAuthConfigValid", Some("remote_auth_config")));
    assert!(said.contains(shared) && told(&world)[0].contains(shared), "{said}");
}

#[test]
fn a_credential_in_clear_text_is_told_of() {
    for (kind, url, warned) in [
        ("bearerToken", "http://mcp.example.com/mcp", true),
        ("bearerToken", "HTTP://mcp.example.com/mcp", true),
        ("tokenExchange", "http://mcp.example.com/mcp", true),
        ("awsSts", "http://mcp.example.com/mcp", true),
        ("bearerToken", "https://mcp.example.com/mcp", false),
    ] {
        let mut world = proxy(kind);
        world.workload.spec.remote_url = url.to_owned();
        let said = told(&world);
        assert_eq!(said.len(), usize::from(warned), "{kind}, {url}: {said:?}");
        assert!(said.iter().all(|it| it.contains("is sent in clear text, as spec.remoteUrl is")), "{said:?}");
    }
    let mut idle = proxy("xaa");
    idle.workload.spec.remote_url = "http://mcp.example.com".to_owned();
    assert_eq!(told(&idle).len(), 1, "it is not sent");
}

#[test]
fn a_bearer_token_comes_by_the_environment_alone() {
    let plan = proxy("bearerToken").plan();
    let document: Value = serde_json::from_str(run_config(&plan)).unwrap();
    assert_eq!(document["remote_auth_config"]["bearer_token"], "s,target=bearer_token");
    let env = &deployment(&plan)["spec"]["template"]["spec"]["containers"][0]["env"];
    let env = env.as_array().unwrap();
    let found = |name: &str| env.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name} in {env:?}"));
    assert_eq!(found("TOOLHIVE_SECRET_s")["valueFrom"]["secretKeyRef"], json!({"name": "s", "key": "k"}));
    assert_eq!(found("TOOLHIVE_SECRETS_PROVIDER")["value"], "environment");
    let said = format!("{:?}{}", plan.conditions, serde_json::to_string(&plan.status).unwrap());
    assert!(!said.contains("hunter2") && !run_config(&plan).contains("hunter2"));
}

#[test]
fn an_exchange_without_a_login_is_told_in_its_condition() {
    let (reason, message) = condition(&server("tokenExchange").plan(), "ExternalAuthConfigValidated", "True").unwrap();
    assert_eq!(reason, "ExternalAuthConfigValid");
    assert!(message.contains("without spec.oidcConfigRef only the provider of the exchange checks it"), "{message}");
    let login = json!({"name": "idp", "audience": "a"});
    let spec = server_spec(json!({"externalAuthConfigRef": {"name": "credential"}, "oidcConfigRef": login}));
    let mut world: World = around("MCPServer", spec, "tokenExchange");
    world.has(oidc_config("idp", inline(json!({}))));
    let (_, message) = condition(&world.plan(), "ExternalAuthConfigValidated", "True").unwrap();
    assert_eq!(message, "MCPExternalAuthConfig \"credential\" is valid");
}

#[test]
fn roles_of_aws_are_written_as_toolhive_writes_them() {
    let golden = |name: &str| format!("{}/tests/golden/09-external-auth/{name}", env!("CARGO_MANIFEST_DIR"));
    let input = std::fs::read_to_string(golden("input.yaml")).unwrap();
    let mut documents = input.split("\n---\n").map(|it| serde_saphyr::from_str::<Value>(it).unwrap());
    let aws = documents.find(|it| it["spec"]["type"] == "awsSts").unwrap();
    let mut world = proxy("awsSts");
    world.has(external_auth_config("credential", aws["spec"].clone()));
    let theirs = std::fs::read_to_string(golden("aws-remote.runconfig.json")).unwrap();
    let member = |text: &str| {
        let from = text.find("  \"aws_sts_config\": {").unwrap();
        text[from..].split_once("\n  },").unwrap().0.to_owned()
    };
    assert_eq!(member(run_config(&world.plan())), member(&theirs));
}

#[test]
fn a_credential_rolls_the_proxy_and_takes_nothing_down() {
    let mut world = server("tokenExchange");
    world.workload.spec.external_auth_config_ref = None;
    world.applied(&world.plan());
    let unused = world.workload.spec.clone();
    world.workload.spec = server("tokenExchange").workload.spec;
    let goes = |plan: &Plan| is_absent(plan, ChildKind::Deployment, "fetch");
    let plan = world.plan();
    assert!(!goes(&plan) && run_config(&plan).contains("token_exchange_config"), "it is added");
    world.applied(&plan);
    assert!(guards(&world.plan()).as_str().unwrap().starts_with("MCPExternalAuthConfig/credential/"));
    world.has(external_auth_config("credential", exchange(json!({"scopes": ["read"]}))));
    let plan = world.plan();
    assert!(!goes(&plan) && run_config(&plan).contains("read"), "it is edited");
    world.applied(&plan);
    let left = |world: &World, why: &str| {
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{why}");
        assert!(plan.status.message.unwrap().ends_with("what runs already is left as it is"), "{why}");
    };
    world.has(external_auth_config("credential", exchange(json!({"tokenUrl": "nowhere"}))));
    left(&world, "it is broken");
    world.configs.clear();
    left(&world, "it is gone");
    world.workload.spec = unused;
    let plan = world.plan();
    assert!(!goes(&plan) && guards(&plan).is_null(), "it is not asked for any more");
}

#[test]
fn a_proxy_goes_while_the_type_of_its_new_credential_is_unknown() {
    let mut world = server("tokenExchange");
    world.workload.spec.external_auth_config_ref = None;
    world.applied(&world.plan());
    world.workload.spec = server("tokenExchange").workload.spec;
    world.configs.clear();
    let plan = world.plan();
    assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "it may be an authorization server");
    assert_eq!(condition(&plan, "ExternalAuthConfigValidated", "False").unwrap().0, "ExternalAuthConfigNotFound");
}

#[test]
fn an_authorization_server_is_a_guard_by_either_field() {
    for change in
        [json!({"externalAuthConfigRef": {"name": "credential"}}), json!({"authServerRef": {"name": "credential"}})]
    {
        let mut world: World = around("MCPServer", server_spec(json!({})), "embeddedAuthServer");
        world.applied(&world.plan());
        world.workload.spec = serde_json::from_value(server_spec(change.clone())).unwrap();
        let plan = world.plan();
        assert!(plan.children.is_empty() && is_absent(&plan, ChildKind::Deployment, "fetch"), "{change}");
    }
    let mut edited = server("tokenExchange");
    edited.applied(&edited.plan());
    edited.has(external_auth_config("credential", auth_server()));
    assert!(is_absent(&edited.plan(), ChildKind::Deployment, "fetch"), "a credential that becomes one");
}

/// Words, hash and mark belong to the use.
#[test]
fn one_object_in_both_fields_is_judged_for_each() {
    let both = json!({"externalAuthConfigRef": {"name": "credential"}, "authServerRef": {"name": "credential"}});
    let mut world = server("tokenExchange");
    world.applied(&world.plan());
    world.workload.spec = serde_json::from_value(server_spec(both)).unwrap();
    let plan = world.plan();
    assert!(condition(&plan, "ExternalAuthConfigValidated", "True").is_some());
    let (reason, message) = condition(&plan, "AuthServerRefValidated", "False").unwrap();
    assert!(reason == "AuthServerRefInvalidType" && message.contains("embeddedAuthServer"), "{reason}: {message}");
    assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "the mark of the credential is none of the server");
    let hash = world.hash("MCPExternalAuthConfig", "credential");
    assert_eq!(plan.status.external_auth_config_hash, Some(hash));
    assert_eq!(plan.status.auth_server_config_hash, None);
}

#[test]
fn what_a_credential_needs_has_to_exist() {
    let mut missing = server("tokenExchange");
    missing.data.secrets.clear();
    let found = condition(&missing.plan(), "ExternalAuthConfigValidated", "False").unwrap();
    let needs = "MCPExternalAuthConfig \"credential\" needs what does not exist: spec.tokenExchange.clientSecretRef";
    let expected = format!("{needs}: Secret \"s\" does not exist; create it with the key \"k\"");
    assert_eq!(found, ("ExternalAuthSecretNotFound".to_owned(), expected));
    missing.secret("s", "other", "x");
    let found = condition(&missing.plan(), "ExternalAuthConfigValidated", "False").unwrap();
    assert_eq!(found.1, format!("{needs}: Secret \"s\" has no key \"k\"; add it"));
    let mut blank = server("tokenExchange");
    blank.secret("s", "k", "\n");
    let found = condition(&blank.plan(), "ExternalAuthConfigValidated", "False").unwrap();
    let expected = "MCPExternalAuthConfig \"credential\" needs what cannot be used: spec.tokenExchange.clientSecretRef: Secret s/k is empty";
    assert_eq!(found, ("ExternalAuthSecretNotValid".to_owned(), expected.to_owned()));
    let mut older = server("tokenExchange");
    older.settings.runner_middleware.retain(|kind| kind != TOKEN_EXCHANGE);
    let (reason, message) = condition(&older.plan(), "ExternalAuthConfigValidated", "False").unwrap();
    assert!(reason == "InvalidExternalAuthConfig" && message.contains("takes tokenexchange"), "{message}");
    assert!(older.plan().children.is_empty(), "no proxy passes the token of a caller on in its place");
}

pub(super) fn told<W: Workload<Status: Clone>>(world: &World<W>) -> Vec<String> {
    advice(&world.workload, &world.configs)
}

#[test]
fn an_author_is_told_of_what_a_credential_does_not_do_here() {
    let field = "spec.externalAuthConfigRef: MCPExternalAuthConfig \"credential\"";
    assert_eq!(told(&server("headerInjection")), [format!("{field} {IDLE}")]);
    assert_eq!(told(&proxy("xaa")), [format!("{field} {IDLE}")]);
    assert!(told(&server("awsSts"))[0].contains("requires a remote URL"));
    assert!(told(&server("tokenExchange"))[0].contains("without spec.oidcConfigRef"));
    assert_eq!(told(&proxy("bearerToken")), [""; 0]);
    let none = |change: Value, kind: &str| {
        let mut spec = json!({"externalAuthConfigRef": {"name": "credential"}});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut world: World = around("MCPServer", server_spec(spec), kind);
        world.has(oidc_config("idp", inline(json!({}))));
        assert_eq!(told(&world), [""; 0], "{kind}");
    };
    none(json!({"groupRef": {"name": "g"}}), "headerInjection");
    none(json!({"oidcConfigRef": {"name": "idp", "audience": "a"}}), "tokenExchange");
    let mut unseen = server("headerInjection");
    unseen.configs = Configs::new();
    assert_eq!(told(&unseen), [""; 0], "one that is not known yet");
}

fn problems(spec: Value) -> Vec<String> {
    external_auth_config("credential", spec).problems().iter().map(ToString::to_string).collect()
}

/// toolhive-auth §3.5
#[test]
fn every_rule_of_each_type_is_said_with_the_field_and_the_fix() {
    for kind in [
        "tokenExchange",
        "headerInjection",
        "bearerToken",
        "unauthenticated",
        "embeddedAuthServer",
        "awsSts",
        "upstreamInject",
        "xaa",
    ] {
        assert_eq!(problems(spec(kind)), [""; 0], "{kind}");
        let mut without = spec(kind);
        let block = without.as_object_mut().unwrap().remove(kind);
        assert_eq!(problems(without).len(), usize::from(block.is_some()), "{kind} has its block");
    }
    let aws = |change: Value| {
        let mut spec = spec("awsSts");
        spec["awsSts"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let mapped = |mapping: Value| {
        let mut mapping = mapping;
        mapping["roleArn"] = json!(ROLE);
        aws(json!({"roleMappings": [mapping]}))
    };
    let xaa = |change: Value| {
        let mut spec = spec("xaa");
        spec["xaa"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let upstream = |change: Value| {
        let mut spec = auth_server();
        spec["embeddedAuthServer"]["upstreamProviders"][0]
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        spec
    };
    let oauth2 = |change: Value| {
        let mut oauth2 = json!({"authorizationEndpoint": "https://idp/a", "tokenEndpoint": "https://idp/t"});
        oauth2.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        upstream(json!({"type": "oauth2", "oidcConfig": null, "oauth2Config": oauth2}))
    };
    let nested = "(".repeat(17) + "true" + &")".repeat(17);
    let mut twice = auth_server();
    let first = twice["embeddedAuthServer"]["upstreamProviders"][0].clone();
    twice["embeddedAuthServer"]["upstreamProviders"] = json!([first, first]);
    let provider = "spec.embeddedAuthServer.upstreamProviders[0]";
    for (spec, said) in [
        (
            json!({"type": "unauthenticated", "upstreamInject": {"providerName": "a"}}),
            "spec.upstreamInject: upstreamInject configuration must be set if and only if type is 'upstreamInject', which is \
             'unauthenticated'; remove it, or change spec.type"
                .to_owned(),
        ),
        (exchange(json!({"tokenUrl": "idp/token"})), "spec.tokenExchange.tokenUrl: \"idp/token\" is not a URL".to_owned()),
        (exchange(json!({"tokenUrl": "ftp://idp/token"})), "spec.tokenExchange.tokenUrl: ".to_owned()),
        (
            exchange(json!({"tokenUrl": "https://a:hunter2@idp/token"})),
            "spec.tokenExchange.tokenUrl: \"https://…@idp/token\" has a user name".to_owned(),
        ),
        (
            exchange(json!({"clientSecretRef": {"name": "s", "key": "k"}})),
            "spec.tokenExchange.clientSecretRef: ClientSecret cannot be provided without ClientID".to_owned(),
        ),
        (
            exchange(json!({"clientId": "c", "clientSecretRef": {"name": "s", "key": ""}})),
            "spec.tokenExchange.clientSecretRef: names no Secret or no key".to_owned(),
        ),
        (exchange(json!({"externalTokenHeaderName": "X Token"})), "spec.tokenExchange.externalTokenHeaderName: ".to_owned()),
        (exchange(json!({"externalTokenHeaderName": "Host"})), "spec.tokenExchange.externalTokenHeaderName: ".to_owned()),
        (
            exchange(json!({"externalTokenHeaderName": "mcp_x"})),
            "spec.tokenExchange.externalTokenHeaderName: \"mcp_x\" is a header that requests have for something else; name"
                .to_owned(),
        ),
        (
            exchange(json!({"externalTokenHeaderName": "a".repeat(129)})),
            format!("spec.tokenExchange.externalTokenHeaderName: \"{}…\" is longer than 128 bytes; name", "a".repeat(32)),
        ),
        (
            aws(json!({"roleMappings": vec![json!({"claim": "a", "roleArn": "arn:aws:iam::123456789012:role/a"}); 65]})),
            "spec.awsSts.roleMappings: has 65 mappings; keep 64".to_owned(),
        ),
        (
            exchange(json!({"subjectTokenType": "saml2"})),
            "spec.tokenExchange.subjectTokenType: invalid subject token type: \"saml2\"".to_owned(),
        ),
        (exchange(json!({"scopes": ["a", "b c"]})), "spec.tokenExchange.scopes[1]: \"b c\" is not a scope".to_owned()),
        (
            json!({"type": "headerInjection", "headerInjection": {"headerName": "Content-Length", "valueSecretRef": {"name": "s", "key": "k"}}}),
            "spec.headerInjection.headerName: ".to_owned(),
        ),
        (
            json!({"type": "bearerToken", "bearerToken": {"tokenSecretRef": {"name": "", "key": "k"}}}),
            "spec.bearerToken.tokenSecretRef: names no Secret".to_owned(),
        ),
        (aws(json!({"region": ""})), "spec.awsSts.region: awsSts.region is required".to_owned()),
        (
            aws(json!({"fallbackRoleArn": null})),
            "spec.awsSts: awsSts: at least one of fallbackRoleArn or roleMappings must be configured".to_owned(),
        ),
        (aws(json!({"service": "a b"})), "spec.awsSts.service: is no service of AWS; write".to_owned()),
        (aws(json!({"sessionDuration": 60})), "spec.awsSts.sessionDuration: awsSts.sessionDuration must be between".to_owned()),
        (mapped(json!({})), "spec.awsSts.roleMappings[0]: exactly one of claim or matcher must be set".to_owned()),
        (
            mapped(json!({"claim": "a", "matcher": "true"})),
            "spec.awsSts.roleMappings[0]: claim and matcher are mutually exclusive".to_owned(),
        ),
        (mapped(json!({"matcher": "claims["})), "spec.awsSts.roleMappings[0].matcher: is not CEL: ".to_owned()),
        (mapped(json!({"matcher": "groups == 1"})), "spec.awsSts.roleMappings[0].matcher: uses \"groups\"".to_owned()),
        (mapped(json!({"matcher": r"claims.a.matches('\\w{100}')"})), "spec.awsSts.roleMappings[0].matcher: matches a pattern that repeats too".to_owned()),
        (mapped(json!({"matcher": nested})), "spec.awsSts.roleMappings[0].matcher: has more than 16".to_owned()),
        (mapped(json!({"matcher": "a".repeat(1025)})), "spec.awsSts.roleMappings[0].matcher: has 1025 bytes".to_owned()),
        (
            json!({"type": "upstreamInject", "upstreamInject": {"providerName": ""}}),
            "spec.upstreamInject.providerName: upstreamInject requires a non-empty providerName".to_owned(),
        ),
        (spec("obo"), "spec.type: obo is not part of this operator".to_owned()),
        (xaa(json!({"targetTokenUrl": "http://target/token"})), "spec.xaa.targetTokenUrl: ".to_owned()),
        (xaa(json!({"targetAudience": ""})), "spec.xaa.targetAudience: ".to_owned()),
        (xaa(json!({"idpClientId": "a"})), "spec.xaa.idpClientId: idpClientId and idpClientSecretRef go together".to_owned()),
        (twice, "spec.embeddedAuthServer.upstreamProviders[1].name: \"idp\" is the name of another".to_owned()),
        (upstream(json!({"type": "oauth2"})), format!("{provider}: type is \"oauth2\"; set oauth2Config, and")),
        (oauth2(json!({})), format!("{provider}.oauth2Config: oauth2Config: exactly one of clientId or dcrConfig")),
        (
            oauth2(json!({"dcrConfig": {}})),
            format!("{provider}.oauth2Config.dcrConfig: exactly one of discoveryUrl or registrationEndpoint"),
        ),
        (
            oauth2(json!({"clientId": "c", "identityFromToken": {"subjectPath": ""}})),
            format!("{provider}.oauth2Config.identityFromToken.subjectPath: must not be empty"),
        ),
        (
            oauth2(json!({"clientId": "c", "additionalAuthorizationParams": {"state": "x"}})),
            format!("{provider}.oauth2Config.additionalAuthorizationParams[state]: "),
        ),
        (
            oauth2(json!({"clientId": "c", "additionalTokenParams": {"code": "x"}})),
            format!("{provider}.oauth2Config.additionalTokenParams[code]: "),
        ),
    ] {
        let problems = problems(spec.clone());
        assert_eq!(problems.len(), 1, "{spec}: {problems:?}");
        assert!(problems[0].starts_with(&said), "{} / {said}", problems[0]);
    }
}

#[test]
fn a_provider_may_be_in_the_cluster_and_no_service_of_a_cloud() {
    let settings = World::of(json!({"image": "x:1"})).settings;
    for (url, fits) in [
        ("https://idp.example.com/token", true),
        ("http://keycloak.identity.svc:8080/token", true),
        ("http://10.1.2.3/token", true),
        ("http://169.254.169.254/token", false),
        ("https://idp.example.com:99999/token", false),
    ] {
        let problems = external_auth_config("credential", exchange(json!({"tokenUrl": url}))).every_problem(&settings);
        assert_eq!(problems.is_empty(), fits, "{url}: {problems:?}");
        assert!(problems.iter().all(|problem| problem.field == "spec.tokenExchange.tokenUrl"), "{problems:?}");
    }
}

#[test]
fn matchers_of_roles_are_compiled() {
    for matcher in [
        "true",
        "\"ops\" in claims[\"groups\"]",
        "claims.groups.exists(g, g.startsWith('ops-')) && has(claims.email)",
        "claims[\"sub\"].matches('^a') || size(claims.groups) > 2 ? true : false",
    ] {
        let mapping = json!({"matcher": matcher, "roleArn": ROLE});
        let spec = json!({"type": "awsSts", "awsSts": {"region": "eu-central-1", "roleMappings": [mapping]}});
        assert_eq!(problems(spec), [""; 0], "{matcher}");
    }
}

/// The parser calls itself for what is nested: an author must not end the operator.
#[test]
fn no_matcher_takes_the_stack_of_the_operator() {
    for (repeated, times, end) in [
        ("!", 1020, "true"),
        ("-", 1020, "1"),
        ("1+", 510, "1"),
        ("1*", 510, "1"),
        ("true&&", 169, "true"),
        ("true||", 169, "true"),
        ("1<", 510, "1"),
        ("true?1:", 145, "1"),
        ("a.", 510, "a"),
        ("a[", 510, "a"),
        ("[", 1020, ""),
        ("{", 1020, ""),
        ("f(", 510, ""),
        ("\"", 1021, ""),
    ] {
        let mapping = json!({"matcher": repeated.repeat(times) + end, "roleArn": ROLE});
        let spec = json!({"type": "awsSts", "awsSts": {"region": "eu-central-1", "roleMappings": [mapping]}});
        assert!(problems(spec).len() <= 1, "{repeated}");
    }
    let deep = format!("{}claims.a{}", "[".repeat(16), "]".repeat(16));
    let mapping = json!({"matcher": deep, "roleArn": ROLE});
    let spec = json!({"type": "awsSts", "awsSts": {"region": "eu-central-1", "roleMappings": [mapping]}});
    assert_eq!(problems(spec), [""; 0]);
}

#[test]
fn a_type_of_another_edition_is_never_valid() {
    let plan = config_plan::plan::<MCPExternalAuthConfig>(&external_auth_config("credential", spec("obo")), &[]);
    let (status, reason, _) = config_plan::says(&plan, "Valid").unwrap();
    assert_eq!((&*status, &*reason), ("False", "EnterpriseRequired"));
    let mut short = spec("bearerToken");
    short["bearerToken"]["tokenSecretRef"]["key"] = json!("");
    let plan = config_plan::plan::<MCPExternalAuthConfig>(&external_auth_config("credential", short), &[]);
    assert_eq!(config_plan::says(&plan, "Valid").unwrap().1, "ValidationFailed");
}

#[test]
fn what_is_valid_and_does_less_is_warned_of() {
    let settings = World::of(json!({"image": "x:1"})).settings;
    for (spec, field) in [
        (exchange(json!({"tokenUrl": "http://idp/token"})), "spec.tokenExchange.tokenUrl"),
        (exchange(json!({"audience": ""})), "spec.tokenExchange.audience"),
        (exchange(json!({"subjectProviderName": "idp"})), "spec.tokenExchange.subjectProviderName"),
    ] {
        let config = external_auth_config("credential", spec);
        assert_eq!(config.problems(), []);
        let warnings = config.warnings(&settings);
        assert!(warnings.len() == 1 && warnings[0].starts_with(field), "{warnings:?}");
    }
}
