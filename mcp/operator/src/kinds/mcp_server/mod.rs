//! MCPServer: an MCP server in a container, behind a proxy.

mod backend;
mod checks;
mod document;
mod environment;
mod names;
mod rules;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use mcp_api::{
    names::{annotation, condition, label},
    v1alpha1::MCPWebhookConfig,
    v1beta1::{
        self, MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPServer, MCPServerStatus, MCPTelemetryConfig,
        MCPToolConfig, SessionStorageProvider, Transport,
    },
};
use mcp_plan::{
    audit::audit,
    authorization,
    config::{PolicyTerms, Requested, Role, tried},
    external_auth::as_auth_server,
    problem::Problem,
    rate_limits::rate_limits,
    reference::{Data, Reference},
    settings::{CaBundle, Settings},
    workload::{
        Child, ChildKind, ChildRef, Document, Owner, Phase, Previous, Report, access,
        detached::Attached,
        names as shared, overrides,
        pod_template::Template,
        proxy::{self, Proxy},
    },
};
use mcp_runconfig::ProxyMode;
use portcullis::controller::{EventType, PlannedEvent};

use crate::{
    config::ConfigKind as _,
    subject::Subject,
    workload::{self, Findings, Rendering, Restart, Workload},
};

use backend::Backend;

/// The warning about `spec.permissionProfile`, with the text of ToolHive's event.
const NO_PERMISSION_PROFILE: &str =
    "spec.permissionProfile is deprecated and unsupported by the Kubernetes operator; it has no effect";

/// The warning about Redis for the sessions of a stdio server.
const UNSHARED_SESSIONS: &str = "spec.sessionStorage: the sessions of a stdio server stay in its proxy, as that has the server's process; Redis \
     counts the calls of spec.rateLimiting alone";

impl Subject for MCPServer {
    const FINALIZER: Option<&'static str> = Some("mcpserver.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] = ["mcpservers", "mcpservers/status", "mcpservers/finalizers"];

    fn references(&self) -> Vec<Reference> {
        let spec = &self.spec;
        let mut all: Vec<_> = self.uses().references();
        all.extend(spec.group_ref.iter().map(|it| Reference::unbuilt("MCPGroup", "spec.groupRef", &it.name)));
        all.extend(checks::secrets(spec));
        all
    }

    fn problems(&self) -> Vec<Problem> {
        rules::problems(self).into_iter().chain(backend::pod_template(&self.spec).and_then(Result::err)).collect()
    }

    fn change_problems(&self, old: Option<&Self>) -> Vec<Problem> {
        rules::change_problems(old.map(|old| &old.spec), &self.spec)
    }

    fn text_problems(&self, texts: &Data) -> Vec<String> {
        authorization::text_problem(self.spec.authz_config.as_ref(), texts).into_iter().collect()
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let spec = &self.spec;
        let mut warnings = workload::checks::warnings(self, &checks::unsupported(spec), settings);
        warnings.extend(authorization::ignored_provider(spec.authz_config.as_ref()));
        warnings.extend(backend::pod_template(spec).and_then(Result::ok).iter().flat_map(Template::notes));
        warnings.extend(spec.resource_overrides.iter().flat_map(overrides::warnings));
        let telemetry = spec.telemetry_config_ref.as_ref();
        warnings
            .extend(telemetry.and_then(|_| {
                overrides::attributes_note(spec.resource_overrides.as_ref()?, "spec.telemetryConfigRef")
            }));
        if spec.transport == Transport::Stdio
            && spec.rate_limiting.is_none()
            && spec.session_storage.as_ref().is_some_and(|it| it.provider == SessionStorageProvider::Redis)
        {
            warnings.push(UNSHARED_SESSIONS.to_owned());
        }
        let ways = backend::ways(spec);
        if ways.host_port {
            let message =
                "spec.podTemplateSpec.spec: a hostPort leads from the address of a node to the MCP server's pod";
            warnings.push(message.to_owned());
        }
        if ways.host_network {
            warnings.push(
                "spec.podTemplateSpec.spec.hostNetwork: no NetworkPolicy applies to such pods, so the MCP server can be reached \
                 around its proxy"
                    .to_owned(),
            );
        }
        if spec.permission_profile.is_some() {
            warnings.push(NO_PERMISSION_PROFILE.to_owned());
        }
        warnings
    }
}

impl Workload for MCPServer {
    const APP: &'static str = label::APP_MCP_SERVER;
    const NOUN: &'static str = "MCP server";
    const WARNINGS: &'static [&'static str] = &[
        condition::STDIO_REPLICA_CAPPED,
        condition::SESSION_STORAGE_WARNING,
        condition::AUTHZ_PROVIDER_IGNORED,
        workload::checks::CLAIMS_MISSING,
        workload::checks::UNSUPPORTED_FIELDS,
        workload::NETWORK_RESTRICTED,
        checks::SECRET_REFS_VALIDATED,
        checks::BODY_LIMIT_CAPPED,
    ];
    const CHILDREN: &'static [ChildKind] = &ChildKind::ALL;

    /// The proxy of a stdio server attaches to its pod.
    fn granted() -> Vec<PolicyRule> {
        vec![access::attach_grant()]
    }

    fn rights() -> Vec<PolicyRule> {
        vec![access::replace_grant()]
    }

    fn attached(&self) -> Option<Attached> {
        (self.spec.transport == Transport::Stdio)
            .then(|| Attached { pod: names::first_pod(Owner::of(self).name), container: backend::CONTAINER })
    }

    fn uses(&self) -> Requested {
        let spec = &self.spec;
        let login = spec.oidc_config_ref.as_ref();
        let webhooks = spec.webhook_config_ref.as_ref();
        let tools = spec.tool_config_ref.as_ref();
        let policies = spec.authz_config_ref.as_ref();
        let credential = spec.external_auth_config_ref.as_ref();
        let auth_server = spec.auth_server_ref.as_ref();
        let auth_server =
            auth_server.map(|it| MCPExternalAuthConfig::used(Role::Guard, "spec.authServerRef", &it.name, &()));
        let trial = spec.shadow_policies_ref.as_ref();
        let telemetry = spec.telemetry_config_ref.as_ref();
        let has_login = login.is_some() || spec.external_auth_config_ref.is_some();
        let uses = [
            login.map(|it| MCPOIDCConfig::used(Role::Guard, "spec.oidcConfigRef", &it.name, &it.into())),
            webhooks.map(|it| MCPWebhookConfig::used(Role::Guard, "spec.webhookConfigRef", &it.name, &())),
            tools.map(|it| MCPToolConfig::used(Role::Guard, "spec.toolConfigRef", &it.name, &())),
            policies
                .map(|it| MCPAuthzConfig::used(Role::Guard, "spec.authzConfigRef", &it.name, &PolicyTerms::default())),
            authorization::authorization(spec.authz_config.as_ref(), None),
            rate_limits(spec.rate_limiting.as_ref(), spec.session_storage.as_ref(), has_login),
            telemetry.map(|it| {
                MCPTelemetryConfig::used(Role::Setting, "spec.telemetryConfigRef", &it.name, &it.service_name)
            }),
            trial.map(|it| {
                tried(MCPAuthzConfig::used(Role::Setting, "spec.shadowPoliciesRef", &it.name, &PolicyTerms::TRIED))
            }),
            audit(spec.audit.as_ref()),
            credential.map(|it| MCPExternalAuthConfig::used(Role::Guard, "spec.externalAuthConfigRef", &it.name, &())),
            auth_server.map(as_auth_server),
        ];
        Requested::of(uses, self.metadata.annotations.as_ref())
            .with_sessions(spec.session_storage.as_ref(), spec.transport == Transport::Stdio)
    }

    fn has_option_as_image(&self) -> bool {
        self.spec.image.starts_with('-')
    }

    fn previous(&self) -> Previous<'_> {
        let Some(status) = &self.status else { return Previous::default() };
        Previous {
            conditions: status.conditions.as_ref(),
            phase: status.phase.map(phase),
            message: status.message.as_deref(),
            observed_generation: status.observed_generation,
        }
    }

    /// A stdio server is one process, which one proxy holds, whatever an autoscaler wants.
    fn replicas(&self) -> Option<i32> {
        let wanted = self.spec.replicas;
        if self.spec.transport == Transport::Stdio { Some(wanted.unwrap_or(1).min(1)) } else { wanted }
    }

    fn restart(&self) -> Option<Restart> {
        let annotations = self.metadata.annotations.as_ref()?;
        let at = annotations.get(annotation::RESTARTED_AT)?;
        at.parse::<Timestamp>().ok()?;
        let immediate = annotations.get(annotation::RESTART_STRATEGY).is_some_and(|it| it == "immediate");
        Some(Restart { annotation: annotation::RESTARTED_AT, at: at.clone(), immediate })
    }

    fn check(&self, data: &Data, findings: &mut Findings<'_>) {
        checks::check(self, data, findings);
    }

    fn render(&self, rendering: &Rendering<'_>) -> Vec<Child> {
        let Rendering { uses, data, settings } = *rendering;
        let owner = Owner::of(self);
        let proxy = proxy_of(self, &owner, settings);
        let document = Document::of(document::run_config(owner.name, &self.spec, settings), uses);
        let backend = Backend::of(&owner, &self.spec, data, proxy.pull_secrets.clone());

        let mut children = vec![access::account(&owner, &proxy.account)];
        if backend::own_account(&self.spec).is_none() {
            let name = names::workload_account(owner.name);
            children.push(access::account_without_token(&owner, &name));
        }
        if proxy.needs_api {
            children.extend(access::attach_permission(&owner, &proxy.account, names::first_pod(owner.name)));
        }
        children.push(document.config_map(&owner, label::MCP_SERVER));
        children.extend(backend.services());
        children.push(proxy.service(&names::proxy_service(owner.name)));
        // Before what it closes exists.
        children.push(backend.network_policy(Self::APP));
        children.push(backend.stateful_set());
        children.push(proxy.deployment(uses, data, &document));
        children
    }

    fn all_children(&self) -> Vec<ChildRef> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let account = names::proxy_account(name);
        vec![
            ChildRef::new(ChildKind::Deployment, name),
            ChildRef::new(ChildKind::Service, names::proxy_service(name)),
            ChildRef::new(ChildKind::Service, names::backend_service(name)),
            ChildRef::new(ChildKind::Service, names::headless_service(name)),
            ChildRef::new(ChildKind::StatefulSet, name),
            ChildRef::new(ChildKind::ConfigMap, shared::run_config(name)),
            ChildRef::new(ChildKind::RoleBinding, account.clone()),
            ChildRef::new(ChildKind::Role, account.clone()),
            ChildRef::new(ChildKind::NetworkPolicy, names::network_policy(name)),
            ChildRef::new(ChildKind::ServiceAccount, account),
            ChildRef::new(ChildKind::ServiceAccount, names::workload_account(name)),
        ]
    }

    fn parents(child: &ChildRef) -> Vec<&str> {
        names::servers(child)
    }

    fn front(&self) -> Option<ChildRef> {
        Some(ChildRef::new(ChildKind::Service, names::proxy_service(self.metadata.name.as_deref().unwrap_or_default())))
    }

    fn backend(&self) -> Option<ChildRef> {
        Some(ChildRef::new(ChildKind::StatefulSet, self.metadata.name.clone().unwrap_or_default()))
    }

    fn backend_port(&self) -> Option<i32> {
        (self.spec.transport != Transport::Stdio).then(|| environment::mcp_port(&self.spec))
    }

    fn url(&self) -> String {
        let Owner { name, namespace, .. } = Owner::of(self);
        let path = match document::proxy_mode(&self.spec) {
            ProxyMode::Sse => format!("/sse#{name}"),
            ProxyMode::StreamableHttp => "/mcp".to_owned(),
        };
        let (service, port) = (names::proxy_service(name), self.spec.proxy_port);
        format!("http://{service}.{namespace}.svc.cluster.local:{port}{path}")
    }

    fn events(&self) -> Vec<PlannedEvent> {
        let profile = self.spec.permission_profile.iter();
        profile
            .map(|_| PlannedEvent::new(EventType::Warning, "PermissionProfileUnsupported", NO_PERMISSION_PROFILE))
            .collect()
    }

    fn status_of(report: Report) -> MCPServerStatus {
        MCPServerStatus {
            auth_server_config_hash: report.hash("spec.authServerRef"),
            external_auth_config_hash: report.hash("spec.externalAuthConfigRef"),
            authz_config_hash: report.hash("spec.authzConfigRef"),
            oidc_config_hash: report.hash("spec.oidcConfigRef"),
            telemetry_config_hash: report.hash("spec.telemetryConfigRef"),
            tool_config_hash: report.hash("spec.toolConfigRef"),
            webhook_config_hash: report.hash("spec.webhookConfigRef"),
            conditions: report.conditions,
            message: Some(report.message),
            observed_generation: report.observed_generation,
            phase: Some(match report.phase {
                Phase::Pending => v1beta1::Phase::Pending,
                Phase::Ready => v1beta1::Phase::Ready,
                Phase::Failed => v1beta1::Phase::Failed,
                Phase::Terminating => v1beta1::Phase::Terminating,
                Phase::Stopped => v1beta1::Phase::Stopped,
            }),
            ready_replicas: Some(report.ready),
            url: report.url,
        }
    }
}

/// The proxy of a server.
fn proxy_of<'a>(server: &'a MCPServer, owner: &'a Owner<'a>, settings: &'a Settings) -> Proxy<'a> {
    let spec = &server.spec;
    let overrides = spec.resource_overrides.as_ref().and_then(|all| all.proxy_deployment.as_ref());
    let resources = spec.resources.as_ref();
    Proxy {
        owner,
        app: MCPServer::APP,
        image: &settings.runner_image,
        args: proxy::arguments(vec!["run".to_owned(), spec.image.clone()], settings),
        env: proxy::run_environment(Vec::new(), spec.resource_overrides.as_ref()),
        port: spec.proxy_port,
        replicas: server.replicas(),
        session_affinity: spec.session_affinity.as_str(),
        resources: resources.and_then(|it| proxy::resources(it.limits.as_ref(), it.requests.as_ref())),
        account: names::proxy_account(owner.name),
        ca_bundle: settings.ca_bundle.as_ref().map(CaBundle::file),
        needs_api: server.attached().is_some(),
        is_alone: server.attached().is_some(),
        pull_secrets: access::pull_secrets(overrides, settings),
        restart: server.restart().map(|restart| (restart.annotation, restart.at)),
        secrets: Vec::new(),
        readiness_path: proxy::readiness_path(settings),
        readiness_delay: None,
        overrides: spec.resource_overrides.as_ref(),
        // `spec.podTemplateSpec` is for the pods of the MCP server.
        template: None,
    }
}

fn phase(phase: v1beta1::Phase) -> Phase {
    match phase {
        v1beta1::Phase::Pending => Phase::Pending,
        v1beta1::Phase::Ready => Phase::Ready,
        v1beta1::Phase::Failed => Phase::Failed,
        v1beta1::Phase::Terminating => Phase::Terminating,
        v1beta1::Phase::Stopped => Phase::Stopped,
    }
}
