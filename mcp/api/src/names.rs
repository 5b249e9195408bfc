//! The strings that users, ToolHive's tools and both gates rely on, but for those of one kind alone, such as its finalizer: they
//! stand in its folder in the operator.

/// The API group of every kind here.
pub const GROUP: &str = "toolhive.stacklok.dev";

/// On our CRDs: allows stored objects to be rewritten in the storage version.
pub const AUTO_MIGRATE_STORAGE_VERSION_LABEL: &str = "toolhive.stacklok.dev/auto-migrate-storage-version";

/// Labels of the objects made for a workload.
pub mod label {
    /// The kind in lower case (`mcpserver`); with the next four, the selector of the proxy's pods.
    /// The StatefulSet's pods carry the workload's name here instead.
    pub const APP: &str = "app";
    /// The kind in lower case.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// The workload's name.
    pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
    /// `true` on everything that belongs to a workload.
    pub const TOOLHIVE: &str = "toolhive";
    /// The workload's name.
    pub const TOOLHIVE_NAME: &str = "toolhive-name";
    /// The workload's name, on an MCP server and its pods alone.
    pub const TOOLHIVE_BASENAME: &str = "toolhive-basename";
    /// On generated ConfigMaps: what they are for, [`COMPONENT_RUN_CONFIG`] for one.
    pub const COMPONENT: &str = "toolhive.stacklok.io/component";
    /// The value of [`COMPONENT`] on the RunConfig's ConfigMap.
    pub const COMPONENT_RUN_CONFIG: &str = "run-config";
    /// On the RunConfig's ConfigMap: the name of the MCPServer.
    pub const MCP_SERVER: &str = "toolhive.stacklok.io/mcp-server";
    /// On the RunConfig's ConfigMap: the name of the MCPRemoteProxy.
    pub const MCP_REMOTE_PROXY: &str = "toolhive.stacklok.io/mcp-remote-proxy";
    /// On the RunConfig's ConfigMap: who keeps it.
    pub const MANAGED_BY: &str = "toolhive.stacklok.io/managed-by";
    /// The value of [`MANAGED_BY`].
    pub const MANAGED_BY_OPERATOR: &str = "toolhive-operator";
    /// The value of [`APP`] and [`APP_NAME`] for an MCPServer's proxy.
    pub const APP_MCP_SERVER: &str = "mcpserver";
    /// The value of [`APP`] and [`APP_NAME`] for an MCPRemoteProxy's proxy.
    pub const APP_MCP_REMOTE_PROXY: &str = "mcpremoteproxy";
    /// The value of [`APP`] and [`APP_NAME`] for a VirtualMCPServer.
    pub const APP_VIRTUAL_MCP_SERVER: &str = "virtualmcpserver";
}

/// Annotations of the objects made for a workload, and those that users put on a workload.
pub mod annotation {
    /// On a generated ConfigMap: the checksum of its content.
    pub const CONTENT_CHECKSUM: &str = "toolhive.stacklok.dev/content-checksum";
    /// On the proxy's pod template: the checksum of the RunConfig it was made with, so that a change rolls it.
    pub const RUN_CONFIG_CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";
    /// On the proxy's pod template, and so on its pods: the guards they enforce, `KIND/NAME/HASH` of each, sorted, with
    /// commas.
    pub const GUARDS: &str = "toolhive.stacklok.dev/guards";
    /// On the proxy's Deployment: `NAME/HASH` of the MCPWebhookConfig its pods enforce. Versions before [`GUARDS`] know a
    /// guard by it.
    pub const WEBHOOK_CONFIG: &str = "toolhive.stacklok.dev/webhook-config";
    /// What tells of guards is the operator's alone: users' overrides cannot set it.
    pub const TELL_GUARDS: [&str; 2] = [GUARDS, WEBHOOK_CONFIG];
    /// On pod templates: a keyed digest of the values that their processes take at their start alone, those of Secrets in
    /// their environment first of all.
    pub const SECRETS_CHECKSUM: &str = "toolhive.stacklok.dev/secrets-checksum";
    /// On an MCPServer, by its user: the RFC 3339 time of a requested restart; copied to the pod template.
    pub const RESTARTED_AT: &str = "mcpserver.toolhive.stacklok.dev/restarted-at";
    /// On an MCPServer, by its user: how to restart, `rolling` (the default) or `immediate`.
    pub const RESTART_STRATEGY: &str = "mcpserver.toolhive.stacklok.dev/restart-strategy";
    /// On a workload, by its user: paths with commas that serve MCP beside the transport's own. Guards judge requests to them.
    pub const MCP_PATHS: &str = "portcullis.dev/mcp-paths";
    /// On a workload, by its user: paths, and prefixes as in `/docs/*`, with commas, that requests reach unjudged.
    pub const OPEN_PATHS: &str = "portcullis.dev/open-paths";
    /// On a workload, by its user: the origins of the web pages that may call, with commas.
    pub const ALLOWED_ORIGINS: &str = "portcullis.dev/allowed-origins";
    /// On a workload, by its user: `true` where calls with a rate limit are refused while Redis cannot count them.
    pub const FAIL_CLOSED: &str = "portcullis.dev/rate-limits-fail-closed";
}

/// Condition types. For most, `True` is good; the exceptions say so.
pub mod condition {
    /// MCPServer: at least one proxy pod serves.
    pub const READY: &str = "Ready";
    /// MCPServer: `spec.podTemplateSpec` can be merged.
    pub const POD_TEMPLATE_VALID: &str = "PodTemplateValid";
    /// MCPServer: `True` means that `spec.replicas` is held at 1 because of the stdio transport.
    pub const STDIO_REPLICA_CAPPED: &str = "StdioReplicaCapped";
    /// MCPServer: `True` warns of several replicas without a session storage they share.
    pub const SESSION_STORAGE_WARNING: &str = "SessionStorageWarning";
    /// MCPRemoteProxy: the spec keeps the rules, and the Secrets that it names exist.
    pub const CONFIGURATION_VALID: &str = "ConfigurationValid";
    /// VirtualMCPServer: `spec.groupRef` can be used.
    pub const GROUP_REF_VALIDATED: &str = "GroupRefValidated";
    /// Workloads: what `spec.authzConfig` says can be used.
    pub const AUTHZ_CONFIG_VALIDATED: &str = "AuthzConfigValidated";
    /// MCPServer: the limits in `spec.rateLimiting` can be used.
    pub const RATE_LIMIT_CONFIG_VALID: &str = "RateLimitConfigValid";
    /// `True` means that policies name an upstream provider, which has no effect there.
    pub const AUTHZ_PROVIDER_IGNORED: &str = "AuthzPrimaryUpstreamProviderIgnored";
    /// VirtualMCPServer: every MCPExternalAuthConfig in `spec.outgoingAuth` can be used.
    pub const EXTERNAL_AUTH_CONFIG_VALIDATED: &str = "ExternalAuthConfigValidated";
    /// VirtualMCPServer: `spec.config.compositeToolRefs` can be used.
    pub const COMPOSITE_TOOL_REFS_VALIDATED: &str = "CompositeToolRefsValidated";
    /// VirtualMCPServer: `spec.embeddingServerRef` can be used.
    pub const EMBEDDING_SERVER_READY: &str = "EmbeddingServerReady";
    /// VirtualMCPServer: the policies in `spec.incomingAuth.authzConfig` can be read. MCPRemoteProxy: present only while
    /// the spec does not pass validation, and then `False`.
    pub const AUTH_CONFIGURED: &str = "AuthConfigured";
    /// Configuration kinds: the spec can be used.
    pub const VALID: &str = "Valid";
    /// Configuration kinds: `True` means that a deletion waits for the objects that refer to this one.
    pub const DELETION_BLOCKED: &str = "DeletionBlocked";
}

/// Condition reasons, as `kubectl describe` and programs see them.
pub mod reason {
    /// `Ready=True`.
    pub const READY: &str = "Ready";
    /// `Ready=False`; of an MCPRemoteProxy, where something keeps it from being made.
    pub const NOT_READY: &str = "NotReady";
    /// `Ready=True` of an MCPRemoteProxy.
    pub const DEPLOYMENT_READY: &str = "DeploymentReady";
    /// `Ready=False` of an MCPRemoteProxy.
    pub const DEPLOYMENT_NOT_READY: &str = "DeploymentNotReady";
    /// `ConfigurationValid=True`.
    pub const CONFIGURATION_VALID: &str = "ConfigurationValid";
    /// `ConfigurationValid=False`: `spec.remoteUrl` may not be called.
    pub const REMOTE_URL_INVALID: &str = "RemoteURLInvalid";
    /// `ConfigurationValid=False`: a Secret with the value of a header does not exist.
    pub const HEADER_SECRET_NOT_FOUND: &str = "HeaderSecretNotFound";
    /// `PodTemplateValid=True`.
    pub const POD_TEMPLATE_VALID: &str = "ValidPodTemplateSpec";
    /// `PodTemplateValid=False`.
    pub const POD_TEMPLATE_INVALID: &str = "InvalidPodTemplateSpec";
    /// `StdioReplicaCapped=True`.
    pub const STDIO_CAPPED: &str = "StdioTransportCapAt1";
    /// `SessionStorageWarning=True`.
    pub const SESSION_STORAGE_MISSING: &str = "SessionStorageMissingForReplicas";
    /// `RateLimitConfigValid=False`: the limits break a rule.
    pub const RATE_LIMIT_CONFIG_INVALID: &str = "RateLimitConfigInvalid";
    /// `RateLimitConfigValid=False`: calls are to be counted for each user, and nobody logs in.
    pub const PER_USER_REQUIRES_AUTH: &str = "PerUserRequiresAuth";
    /// `Valid=True` of an MCPToolConfig or MCPWebhookConfig.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// `Valid=False` of an MCPTelemetryConfig, MCPToolConfig or MCPWebhookConfig.
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    /// `Ready=False` of a VirtualMCPServer: this version makes no Deployment for it.
    pub const DEPLOYMENT_NOT_BUILT: &str = "DeploymentNotBuilt";
    /// A reference to an object of a kind that this version does not have.
    pub const KIND_NOT_BUILT: &str = "KindNotBuilt";
    /// `AuthConfigured=True`.
    pub const AUTH_VALID: &str = "AuthValid";
    /// `AuthConfigured=False` of an MCPRemoteProxy.
    pub const AUTH_INVALID: &str = "AuthInvalid";
    /// No such ConfigMap with policies, or no such key in it.
    pub const AUTHZ_CONFIG_MAP_NOT_FOUND: &str = "AuthzConfigMapNotFound";
    /// A ConfigMap with policies cannot be used.
    pub const AUTHZ_CONFIG_MAP_INVALID: &str = "AuthzConfigMapInvalid";
    /// Policies in a spec cannot be used.
    pub const AUTHZ_POLICY_SYNTAX_INVALID: &str = "AuthzPolicySyntaxInvalid";
    /// `DeletionBlocked=True`.
    pub const REFERENCED_BY_WORKLOADS: &str = "ReferencedByWorkloads";
}
