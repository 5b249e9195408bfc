//! One for each type, and a status.

use serde_json::{Value, json};

use super::{auth_server, condition, object, secret_key};

pub(super) fn all() -> Vec<Value> {
    let status = json!({
        "conditions": [condition()], "configHash": "a", "observedGeneration": 1,
        "referencingWorkloads": [{"kind": "MCPServer", "name": "server"}],
    });
    let role = "arn:aws:iam::123456789012:role/operators";
    let mut specs = vec![
        json!({"type": "tokenExchange", "tokenExchange": {
            "audience": "server", "clientId": "proxy", "clientSecretRef": secret_key(),
            "externalTokenHeaderName": "X-Upstream-Token", "scopes": ["read"], "subjectProviderName": "idp",
            "subjectTokenType": "jwt", "tokenUrl": "https://idp.example/token",
        }}),
        json!({"type": "headerInjection", "headerInjection": {"headerName": "X-Key", "valueSecretRef": secret_key()}}),
        json!({"type": "bearerToken", "bearerToken": {"tokenSecretRef": secret_key()}}),
        json!({"type": "unauthenticated"}),
        json!({"type": "awsSts", "awsSts": {
            "fallbackRoleArn": role, "region": "eu-central-1", "roleClaim": "groups",
            "roleMappings": [
                {"claim": "ops", "roleArn": role, "priority": 1},
                {"matcher": "\"ops\" in claims[\"groups\"]", "roleArn": role},
            ],
            "service": "aws-mcp", "sessionDuration": 900, "sessionNameClaim": "email", "subjectProviderName": "idp",
        }}),
        json!({"type": "upstreamInject", "upstreamInject": {"providerName": "idp"}}),
        json!({"type": "obo", "obo": {
            "audience": "server", "authority": "https://login.example", "cacheSkew": "1m", "clientId": "proxy",
            "clientSecretRef": secret_key(), "scopes": ["read"], "subjectTokenProviderName": "idp",
            "tenantId": "contoso.example",
        }}),
        json!({"type": "xaa", "xaa": {
            "idpClientId": "proxy", "idpClientSecretRef": secret_key(), "idpTokenUrl": "https://idp.example/token",
            "insecureTargetTokenUrl": false, "scopes": ["read"], "subjectProviderName": "idp",
            "subjectTokenType": "urn:ietf:params:oauth:token-type:id_token", "targetAudience": "https://target.example",
            "targetClientId": "proxy", "targetClientSecretRef": secret_key(), "targetResource": "https://mcp.example",
            "targetTokenUrl": "https://target.example/token",
        }}),
    ];
    for config in [auth_server::canonical(), auth_server::deprecated(), auth_server::without_users()] {
        specs.push(json!({"type": "embeddedAuthServer", "embeddedAuthServer": config}));
    }
    let api = "toolhive.stacklok.dev/v1beta1";
    specs.into_iter().map(|spec| object(api, "MCPExternalAuthConfig", spec, status.clone())).collect()
}
