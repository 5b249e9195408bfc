//! Clients: the administrator's, any user's, and users bound to given RBAC rules.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::PostParams;
use kube::config::Config;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use super::cluster::unique;
use super::credentials::write_private;
use crate::{ControlPlane, wait_until};

/// Rights of a user.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Grant<'a> {
    /// These rules in the whole cluster.
    ClusterRules(&'a [PolicyRule]),
    /// These rules in one namespace.
    Rules {
        /// The namespace.
        namespace: &'a str,
        /// The rules.
        rules: &'a [PolicyRule],
    },
    /// A ClusterRole that exists already (one that an operator ships, applied before), in the whole cluster.
    ClusterRole(&'a str),
    /// A Role that exists already, in its namespace.
    Role {
        /// The namespace.
        namespace: &'a str,
        /// The Role's name.
        name: &'a str,
    },
}

/// A user with exactly the rights that were granted.
#[derive(Clone)]
pub struct User {
    /// The user's name, as RBAC and the audit log know it.
    pub name: String,
    /// A client that acts as the user, for the runtime it was made on.
    pub client: Client,
    /// A kubeconfig file of the user, for other processes.
    pub kubeconfig: PathBuf,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

/// A client that the control plane cannot make is a defect of this crate, or a missing runtime.
fn made<T, E: fmt::Display>(user: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("cannot make a client for {user}: {error}"))
}

impl ControlPlane {
    /// A client of the administrator, for the current runtime: each test needs its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn admin(&self) -> Client {
        self.client_as("admin", &["system:masters"])
    }

    /// A client that acts as this user in these groups, two at most and `system:authenticated`, with the rights that
    /// RBAC grants them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        made(user, self.try_client(user, groups))
    }

    /// The configuration of a client that acts as this user in these groups.
    ///
    /// # Panics
    /// When no certificate can be made for the user.
    pub fn config_as(&self, user: &str, groups: &[&str]) -> Config {
        made(user, self.try_config(user, groups))
    }

    /// A kubeconfig file for this user in these groups, for other processes; only this user of the machine may read it.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> PathBuf {
        let kubeconfig = made(user, self.authority.kubeconfig(&self.url, user, groups));
        let file: String = user.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = self.directory().join(format!("{}.kubeconfig", unique(&file)));
        made(user, write_private(&path, &made(user, serde_json::to_string_pretty(&kubeconfig))));
        path
    }

    /// Creates a user (of this name, made unique) with exactly these rights, and returns when they are in force.
    ///
    /// # Panics
    /// When a grant is refused by the API server or does not come into force within a minute.
    pub async fn user_with(&self, name: &str, grants: &[Grant<'_>]) -> User {
        let name = unique(name);
        let admin = self.admin();
        for (index, grant) in grants.iter().enumerate() {
            self.bind(&admin, &name, &format!("{name}-{index}"), *grant).await;
        }
        User { client: self.client_as(&name, &[]), kubeconfig: self.kubeconfig_as(&name, &[]), name }
    }

    /// Creates a user with exactly these rules in the whole cluster; see [`ControlPlane::user_with`].
    ///
    /// # Panics
    /// When the rules are refused by the API server or do not come into force within a minute.
    pub async fn client_with_rules(&self, name: &str, rules: &[PolicyRule]) -> User {
        self.user_with(name, &[Grant::ClusterRules(rules)]).await
    }

    /// Applies the manifests of an operator's `generate rbac` as they are, and returns the operator's user when the
    /// rights are in force: the first ServiceAccount among them, in the groups of every ServiceAccount.
    ///
    /// # Panics
    /// When they contain no ServiceAccount, the API server refuses one of them, or its rights do not come into
    /// force within a minute.
    pub async fn user_from_manifests(&self, manifests: &[Value]) -> User {
        self.apply(manifests).await;
        let admin = self.admin();
        let account = |object: &Value| {
            let part = |part: &str| object[part].as_str().unwrap_or_default().to_owned();
            (part("namespace"), part("name"))
        };
        let user = |(namespace, name): &(String, String)| format!("system:serviceaccount:{namespace}:{name}");
        for binding in manifests.iter().filter(|manifest| manifest.get("roleRef").is_some()) {
            let (role, namespace) = (&binding["roleRef"], binding["metadata"]["namespace"].as_str());
            let same = |manifest: &&Value| {
                manifest["kind"] == role["kind"]
                    && manifest["metadata"]["name"] == role["name"]
                    && manifest["metadata"]["namespace"].as_str() == namespace
            };
            let rules = manifests.iter().find(same).map(|role| role["rules"].clone()).unwrap_or_default();
            let rules: Vec<PolicyRule> = made("a role", serde_json::from_value(rules));
            for bound in binding["subjects"].as_array().into_iter().flatten() {
                in_force(&admin, &user(&account(bound)), namespace, &rules).await;
            }
        }
        let own = manifests.iter().find(|manifest| manifest["kind"] == "ServiceAccount");
        let own = own.unwrap_or_else(|| panic!("{} manifests contain no ServiceAccount", manifests.len()));
        let own = account(&own["metadata"]);
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{}", own.0)];
        let name = user(&own);
        User { client: self.client_as(&name, &groups), kubeconfig: self.kubeconfig_as(&name, &groups), name }
    }

    pub(crate) fn try_client(&self, user: &str, groups: &[&str]) -> kube::Result<Client> {
        let config = self.try_config(user, groups).map_err(kube::Error::Service)?;
        Client::try_from(config)
    }

    fn try_config(&self, user: &str, groups: &[&str]) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
        let kubeconfig = self.authority.kubeconfig(&self.url, user, groups)?;
        let mut config = Config::new(self.url.parse()?);
        config.root_cert = Some(vec![CertificateDer::from_pem_slice(self.authority.cert_pem().as_bytes())?.to_vec()]);
        config.auth_info = kubeconfig.auth_infos.into_iter().find_map(|named| named.auth_info).unwrap_or_default();
        Ok(config)
    }

    async fn bind(&self, admin: &Client, user: &str, name: &str, grant: Grant<'_>) {
        let subjects = Some(vec![Subject {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "User".to_owned(),
            name: user.to_owned(),
            namespace: None,
        }]);
        let role_ref = |kind: &str, name: &str| RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let done = async {
            let create = PostParams::default();
            match grant {
                Grant::ClusterRules(rules) => {
                    let role =
                        ClusterRole { metadata: metadata.clone(), rules: Some(rules.to_vec()), ..Default::default() };
                    Api::all(admin.clone()).create(&create, &role).await?;
                }
                Grant::Rules { namespace, rules } => {
                    let role = Role { metadata: metadata.clone(), rules: Some(rules.to_vec()) };
                    Api::namespaced(admin.clone(), namespace).create(&create, &role).await?;
                }
                Grant::ClusterRole(_) | Grant::Role { .. } => {}
            }
            let (namespace, role_ref, rules) = match grant {
                Grant::ClusterRules(rules) => (None, role_ref("ClusterRole", name), rules.to_vec()),
                Grant::Rules { namespace, rules } => (Some(namespace), role_ref("Role", name), rules.to_vec()),
                Grant::ClusterRole(role) => {
                    let rules = Api::<ClusterRole>::all(admin.clone()).get(role).await?.rules;
                    (None, role_ref("ClusterRole", role), rules.unwrap_or_default())
                }
                Grant::Role { namespace, name } => {
                    let rules = Api::<Role>::namespaced(admin.clone(), namespace).get(name).await?.rules;
                    (Some(namespace), role_ref("Role", name), rules.unwrap_or_default())
                }
            };
            if let Some(namespace) = namespace {
                let binding = RoleBinding { metadata, role_ref, subjects };
                Api::namespaced(admin.clone(), namespace).create(&create, &binding).await?;
            } else {
                let binding = ClusterRoleBinding { metadata, role_ref, subjects };
                Api::all(admin.clone()).create(&create, &binding).await?;
            }
            in_force(admin, user, namespace, &rules).await;
            kube::Result::Ok(())
        };
        done.await.unwrap_or_else(|error: kube::Error| panic!("cannot grant {user} its rights ({grant:?}): {error}"));
    }
}

/// RBAC follows its objects by watch: asks until the API server would allow what the last rule allows.
async fn in_force(admin: &Client, user: &str, namespace: Option<&str>, rules: &[PolicyRule]) {
    let Some(rule) = rules.last() else { return };
    let first = |list: &Option<Vec<String>>| list.iter().flatten().next().cloned();
    let mut spec = SubjectAccessReviewSpec { user: Some(user.to_owned()), ..Default::default() };
    let verb = rule.verbs.first().cloned();
    if let Some(path) = first(&rule.non_resource_urls) {
        spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path), verb });
    } else {
        let resource = first(&rule.resources).unwrap_or_default();
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
            None => (resource, None),
        };
        spec.resource_attributes = Some(ResourceAttributes {
            group: first(&rule.api_groups),
            resource: Some(resource),
            subresource,
            name: first(&rule.resource_names),
            namespace: namespace.map(str::to_owned),
            verb,
            ..Default::default()
        });
    }
    let review = SubjectAccessReview { spec, ..Default::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(admin.clone());
    wait_until(&format!("the rights of {user} to be in force"), Duration::from_mins(1), || async {
        let answer = reviews.create(&PostParams::default(), &review).await.ok()?;
        answer.status.filter(|status| status.allowed)
    })
    .await;
}
