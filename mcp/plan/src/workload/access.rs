//! ServiceAccounts, pull secrets, and the one right that a proxy may need.
//!
//! A proxy may create no workload. Only one that attaches to its MCP server's pod needs the API at all: `get, create`
//! on `pods/attach` of that pod (a WebSocket attach is a GET). Other proxies get no Role, and no token. Where the
//! server in that pod has to be replaced, the operator does it.

use k8s_openapi::api::{
    core::v1::{LocalObjectReference, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use mcp_api::v1beta1::ProxyDeploymentOverrides;
use portcullis_manifest::policy_rule;

use super::{
    child::{Child, ChildKind},
    owner::Owner,
};
use crate::settings::Settings;

/// A proxy's ServiceAccount. Its pods say whether they mount a token.
pub fn account(owner: &Owner<'_>, name: &str) -> Child {
    account_with(owner, name, None)
}

/// A ServiceAccount whose pods mount no token unless they say so themselves.
pub fn account_without_token(owner: &Owner<'_>, name: &str) -> Child {
    account_with(owner, name, Some(false))
}

/// The pods name their pull secrets: a ServiceAccount's list is atomic, and OpenShift's controller writes it.
fn account_with(owner: &Owner<'_>, name: &str, automount: Option<bool>) -> Child {
    let account = ServiceAccount {
        metadata: owner.metadata(name, [].into()),
        automount_service_account_token: automount,
        ..ServiceAccount::default()
    };
    Child::new(ChildKind::ServiceAccount, name, &account)
}

/// The grant of [`attach_permission`], for every pod.
pub fn attach_grant() -> PolicyRule {
    policy_rule("", &["pods/attach"], &["get", "create"])
}

/// The grant to read the pod that a proxy attaches to, and to delete it when it [has to be replaced](super::detached).
pub fn replace_grant() -> PolicyRule {
    policy_rule("", &["pods"], &["get", "delete"])
}

/// The Role under which the ServiceAccount of the same name attaches to `pod`, and its binding.
pub fn attach_permission(owner: &Owner<'_>, account: &str, pod: String) -> [Child; 2] {
    let metadata = owner.metadata(account, [].into());
    let role = Role {
        metadata: metadata.clone(),
        rules: Some(vec![PolicyRule { resource_names: Some(vec![pod]), ..attach_grant() }]),
    };
    let binding = RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: account.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(owner.namespace.to_owned()),
            ..Subject::default()
        }]),
    };
    [Child::new(ChildKind::Role, account, &role), Child::new(ChildKind::RoleBinding, account, &binding)]
}

/// The workload's own pull secrets, then the operator's, each once.
pub fn pull_secrets(
    overrides: Option<&ProxyDeploymentOverrides>,
    settings: &Settings,
) -> Option<Vec<LocalObjectReference>> {
    let own = overrides.and_then(|proxy| proxy.image_pull_secrets.as_deref()).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    let defaults = settings.default_image_pull_secrets.iter().map(String::as_str);
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
