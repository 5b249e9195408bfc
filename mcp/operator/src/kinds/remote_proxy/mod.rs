//! MCPRemoteProxy: a proxy in front of an MCP server that runs elsewhere.

mod checks;
mod document;
mod headers;
mod names;
mod rules;

use mcp_api::{
    names::{condition, label, reason},
    v1alpha1::MCPWebhookConfig,
    v1beta1::{
        MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPRemoteProxy, MCPRemoteProxyStatus, MCPTelemetryConfig,
        MCPToolConfig, RemoteProxyPhase,
    },
};
use mcp_plan::{
    audit::audit,
    authorization,
    config::{Behind, PolicyTerms, Requested, Role, tried},
    external_auth::as_auth_server,
    problem::Problem,
    reference::{Data, Reference},
    session_storage,
    settings::{CaBundle, Settings},
    workload::{
        Child, ChildKind, ChildRef, Document, Owner, Phase, Previous, Report, access, names as shared, overrides,
        proxy::{self, Proxy},
    },
};

use mcp_runconfig::environment;

use crate::{
    config::ConfigKind as _,
    subject::Subject,
    workload::{self, Block, Findings, Rendering, Restart, Workload},
};

impl Subject for MCPRemoteProxy {
    /// There is nothing behind the proxy that has to end before something else does.
    const FINALIZER: Option<&'static str> = None;
    const RESOURCES: [&'static str; 3] = ["mcpremoteproxies", "mcpremoteproxies/status", "mcpremoteproxies/finalizers"];

    fn references(&self) -> Vec<Reference> {
        let spec = &self.spec;
        let mut all: Vec<_> = self.uses().references();
        all.extend(spec.group_ref.iter().map(|it| Reference::unbuilt("MCPGroup", "spec.groupRef", &it.name)));
        all.extend(headers::references(spec));
        all
    }

    fn problems(&self) -> Vec<Problem> {
        rules::problems(self).into_iter().chain(checks::pod_template(&self.spec).and_then(Result::err)).collect()
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        rules::remote_url_problem(self, settings).into_iter().collect()
    }

    fn change_problems(&self, old: Option<&Self>) -> Vec<Problem> {
        let (old, new) = (old.map(|old| &old.spec), &self.spec);
        let longest = Some(authorization::LONGEST_OF_REMOTE);
        let policies = old.and_then(|old| old.authz_config.as_ref());
        let policies = authorization::change_problems(policies, new.authz_config.as_ref(), longest);
        let sessions = old.and_then(|old| old.session_storage.as_ref());
        let sessions = session_storage::change_problems(sessions, new.session_storage.as_ref());
        policies.into_iter().chain(sessions).collect()
    }

    fn text_problems(&self, texts: &Data) -> Vec<String> {
        authorization::text_problem(self.spec.authz_config.as_ref(), texts).into_iter().collect()
    }

    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let spec = &self.spec;
        let mut warnings = workload::checks::warnings(self, &checks::unsupported(spec), settings);
        warnings.extend(authorization::ignored_provider(spec.authz_config.as_ref()));
        warnings.extend(checks::template_notes(spec));
        warnings.extend(spec.resource_overrides.iter().flat_map(overrides::warnings));
        let telemetry = spec.telemetry_config_ref.as_ref();
        warnings
            .extend(telemetry.and_then(|_| {
                overrides::attributes_note(spec.resource_overrides.as_ref()?, "spec.telemetryConfigRef")
            }));
        if self.is_clear_text() && !headers::from_secrets(spec).is_empty() {
            warnings.push(
                "spec.remoteUrl: the headers with values from Secrets are sent in clear text; use https".to_owned(),
            );
        }
        warnings
    }
}

impl Workload for MCPRemoteProxy {
    const APP: &'static str = label::APP_MCP_REMOTE_PROXY;
    const BEHIND: Behind = Behind::Remote;
    const NOUN: &'static str = "Remote proxy";
    const READY: [&'static str; 2] = [reason::DEPLOYMENT_READY, reason::DEPLOYMENT_NOT_READY];
    const WARNINGS: &'static [&'static str] = &[
        condition::SESSION_STORAGE_WARNING,
        condition::AUTHZ_PROVIDER_IGNORED,
        workload::checks::CLAIMS_MISSING,
        workload::checks::UNSUPPORTED_FIELDS,
        workload::NETWORK_RESTRICTED,
        workload::REMOTE_REACHABLE,
    ];
    const CHILDREN: &'static [ChildKind] = &[
        ChildKind::ConfigMap,
        ChildKind::Service,
        ChildKind::ServiceAccount,
        ChildKind::Role,
        ChildKind::RoleBinding,
        ChildKind::Deployment,
    ];
    /// ToolHive's operator lets its proxies read every Secret of the namespace: that right goes.
    const OBSOLETE: &'static [ChildKind] = &[ChildKind::Role, ChildKind::RoleBinding];

    fn failure() -> String {
        format!("{} failed to start", Self::NOUN)
    }

    fn refusal(block: &Block) -> String {
        checks::refusal(block)
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
        let uses = [
            login.map(|it| MCPOIDCConfig::used(Role::Guard, "spec.oidcConfigRef", &it.name, &it.into())),
            webhooks.map(|it| MCPWebhookConfig::used(Role::Guard, "spec.webhookConfigRef", &it.name, &())),
            tools.map(|it| MCPToolConfig::used(Role::Guard, "spec.toolConfigRef", &it.name, &())),
            policies
                .map(|it| MCPAuthzConfig::used(Role::Guard, "spec.authzConfigRef", &it.name, &PolicyTerms::default())),
            authorization::authorization(spec.authz_config.as_ref(), Some(authorization::LONGEST_OF_REMOTE)),
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
        Requested::of(uses, self.metadata.annotations.as_ref()).with_sessions(spec.session_storage.as_ref(), false)
    }

    fn previous(&self) -> Previous<'_> {
        let Some(status) = &self.status else { return Previous::default() };
        Previous {
            conditions: status.conditions.as_ref(),
            phase: status.phase.map(|phase| match phase {
                RemoteProxyPhase::Pending => Phase::Pending,
                RemoteProxyPhase::Ready => Phase::Ready,
                RemoteProxyPhase::Failed => Phase::Failed,
                RemoteProxyPhase::Terminating => Phase::Terminating,
            }),
            message: status.message.as_deref(),
            observed_generation: status.observed_generation,
        }
    }

    fn is_clear_text(&self) -> bool {
        self.spec.remote_url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
    }

    fn replicas(&self) -> Option<i32> {
        self.spec.replicas
    }

    fn restart(&self) -> Option<Restart> {
        None
    }

    fn check(&self, data: &Data, findings: &mut Findings<'_>) {
        checks::check(self, data, findings);
    }

    fn render(&self, rendering: &Rendering<'_>) -> Vec<Child> {
        let Rendering { uses, data, settings } = *rendering;
        let owner = Owner::of(self);
        let proxy = proxy_of(self, &owner, settings);
        let document = Document::of(document::run_config(owner.name, &self.spec, settings), uses);
        let mut children = Vec::new();
        if own_account(self).is_none() {
            children.push(access::account(&owner, &proxy.account));
        }
        children.push(document.config_map(&owner, label::MCP_REMOTE_PROXY));
        children.push(proxy.service(&names::service(owner.name)));
        children.push(proxy.deployment(uses, data, &document));
        children
    }

    fn all_children(&self) -> Vec<ChildRef> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let account = names::account(name);
        vec![
            ChildRef::new(ChildKind::Deployment, name),
            ChildRef::new(ChildKind::Service, names::service(name)),
            ChildRef::new(ChildKind::ConfigMap, shared::run_config(name)),
            ChildRef::new(ChildKind::RoleBinding, account.clone()),
            ChildRef::new(ChildKind::Role, account.clone()),
            ChildRef::new(ChildKind::ServiceAccount, account),
        ]
    }

    fn parents(child: &ChildRef) -> Vec<&str> {
        names::proxies(child)
    }

    fn front(&self) -> Option<ChildRef> {
        Some(ChildRef::new(ChildKind::Service, names::service(self.metadata.name.as_deref().unwrap_or_default())))
    }

    fn backend(&self) -> Option<ChildRef> {
        None
    }

    fn added_headers(&self) -> Vec<String> {
        headers::names(&self.spec)
    }

    fn checks_remote(&self) -> Option<u16> {
        let overrides = self.spec.resource_overrides.as_ref()?.proxy_deployment.as_ref()?;
        let mut variables = overrides.env.iter().flatten().filter(|it| it.name == environment::REMOTE_HEALTH_CHECKS);
        let is_on = variables.next().is_some_and(|it| environment::is_on(&it.value));
        u16::try_from(self.spec.proxy_port).ok().filter(|_| is_on)
    }

    fn url(&self) -> String {
        let Owner { name, namespace, .. } = Owner::of(self);
        format!("http://{}.{namespace}.svc.cluster.local:{}", names::service(name), self.spec.proxy_port)
    }

    fn status_of(report: Report) -> MCPRemoteProxyStatus {
        MCPRemoteProxyStatus {
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
                // The contract has no word for it; the message says that it is scaled to zero.
                Phase::Pending | Phase::Stopped => RemoteProxyPhase::Pending,
                Phase::Ready => RemoteProxyPhase::Ready,
                Phase::Failed => RemoteProxyPhase::Failed,
                Phase::Terminating => RemoteProxyPhase::Terminating,
            }),
            url: report.url,
            ..MCPRemoteProxyStatus::default()
        }
    }
}

/// The ServiceAccount that its author named, if any.
fn own_account(proxy: &MCPRemoteProxy) -> Option<&str> {
    proxy.spec.service_account.as_deref().filter(|name| !name.is_empty())
}

fn proxy_of<'a>(proxy: &'a MCPRemoteProxy, owner: &'a Owner<'a>, settings: &'a Settings) -> Proxy<'a> {
    let spec = &proxy.spec;
    let overrides = spec.resource_overrides.as_ref();
    let resources = spec.resources.as_ref();
    let mut template = checks::pod_template(spec).and_then(Result::ok).map(|template| template.known);
    if let (Some(_), Some(pod)) = (own_account(proxy), template.as_mut().and_then(|template| template.spec.as_mut())) {
        // The field for it is more than its place in a template.
        pod.service_account_name = None;
    }
    let args = ["run", "--foreground=true", "placeholder-for-remote-proxy"].map(str::to_owned);
    Proxy {
        owner,
        app: MCPRemoteProxy::APP,
        image: &settings.runner_image,
        args: proxy::arguments(args.into(), settings),
        env: proxy::run_environment(headers::provider(spec).into_iter().collect(), overrides),
        port: spec.proxy_port,
        replicas: spec.replicas,
        session_affinity: spec.session_affinity.as_str(),
        resources: resources.and_then(|it| proxy::resources(it.limits.as_ref(), it.requests.as_ref())),
        account: own_account(proxy).map_or_else(|| names::account(owner.name), str::to_owned),
        ca_bundle: settings.ca_bundle.as_ref().map(CaBundle::file),
        needs_api: false,
        is_alone: false,
        pull_secrets: access::pull_secrets(overrides.and_then(|all| all.proxy_deployment.as_ref()), settings),
        restart: None,
        secrets: headers::variables(owner.name, spec),
        readiness_path: proxy::readiness_path(settings),
        readiness_delay: Some(15),
        overrides,
        template,
    }
}
