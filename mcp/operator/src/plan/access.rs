//! ServiceAccounts and what they may do.
//!
//! A proxy may create no workload. Only the one that attaches to a stdio server needs the API at all: `get, create` on
//! `pods/attach` of that server's pod (a WebSocket attach is a GET). Other proxies get no Role, and no token.

use k8s_openapi::api::{
    core::v1::{LocalObjectReference, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use mcp_api::v1beta1::Transport;

use super::{Child, ChildKind, metadata::Server, names};

/// Whether the server's proxy speaks to the Kubernetes API.
pub(super) fn needs_api(server: &Server<'_>) -> bool {
    server.spec.transport == Transport::Stdio
}

/// The ServiceAccounts that are made for the server.
pub(super) fn accounts(server: &Server<'_>) -> Vec<Child> {
    let mut accounts = vec![account(server, &names::proxy_account(server.name))];
    if own_account(server).is_none() {
        accounts.push(account(server, &names::workload_account(server.name)));
    }
    accounts
}

/// The user's own ServiceAccount for the MCP server, if one is named.
pub(super) fn own_account<'a>(server: &Server<'a>) -> Option<&'a str> {
    server.spec.service_account.as_deref().filter(|name| !name.is_empty())
}

/// The Role of a stdio server's proxy, and its binding.
pub(super) fn attach_permission(server: &Server<'_>) -> Vec<Child> {
    if !needs_api(server) {
        return Vec::new();
    }
    let name = names::proxy_account(server.name);
    let metadata = server.metadata(&name, [].into());
    let role = Role {
        metadata: metadata.clone(),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["pods/attach".to_owned()]),
            resource_names: Some(vec![format!("{}-0", server.name)]),
            verbs: vec!["get".to_owned(), "create".to_owned()],
            ..PolicyRule::default()
        }]),
    };
    let binding = RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.clone(),
            namespace: Some(server.namespace.to_owned()),
            ..Subject::default()
        }]),
    };
    vec![Child::new(ChildKind::Role, &name, &role), Child::new(ChildKind::RoleBinding, &name, &binding)]
}

/// The server's own pull secrets, then the operator's, each once.
pub(super) fn pull_secrets(server: &Server<'_>) -> Option<Vec<LocalObjectReference>> {
    let own = server.spec.resource_overrides.as_ref().and_then(|all| all.proxy_deployment.as_ref());
    let own = own.and_then(|proxy| proxy.image_pull_secrets.as_deref()).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    let defaults = server.settings.default_image_pull_secrets.iter().map(String::as_str);
    for name in own.iter().map(|secret| secret.name.as_str()).chain(defaults) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    Some(names.into_iter().map(|name| LocalObjectReference { name: name.to_owned() }).collect())
}

fn account(server: &Server<'_>, name: &str) -> Child {
    let account = ServiceAccount {
        metadata: server.metadata(name, [].into()),
        image_pull_secrets: pull_secrets(server),
        ..ServiceAccount::default()
    };
    Child::new(ChildKind::ServiceAccount, name, &account)
}
