//! Requests that are signed with a role of AWS, which the caller's token opens (toolhive-runner §2.17, toolhive-auth §6.3).

use serde::{Deserialize, Serialize};

use crate::RunConfig;

/// `type` of the middleware that signs requests for AWS.
pub const AWS_STS: &str = "awssts";

/// Parameters of `awssts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwsStsParameters {
    /// The roles, and what is signed for. It is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts_config: Option<AwsStsConfig>,
    /// The URL of the remote MCP server. It is required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_url: String,
}

/// Roles of AWS by the claims of callers. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwsStsConfig {
    /// The region of STS and of the MCP server. It is required.
    pub region: String,
    /// The name that signatures have for the service; empty: `aws-mcp`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// The role of callers whom no mapping fits; empty: they are refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fallback_role_arn: String,
    /// Which callers get which role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role_mappings: Vec<RoleMapping>,
    /// The claim that holds what a mapping's `claim` is compared with; empty: `groups`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role_claim: String,
    /// The seconds that a session of a role lasts; 0 means 3600.
    #[serde(skip_serializing_if = "is_zero")]
    pub session_duration: u32,
    /// The claim that names a caller's session; empty: `sub`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_name_claim: String,
    /// The provider of an embedded authorization server whose token opens the role. No proxy of this version reads it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject_provider_name: String,
}

/// A role, and who gets it: whom exactly one of `claim` and `matcher` fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleMapping {
    /// A value that the caller's claim has, or has among others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// An expression in CEL that is true of the caller's `claims`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub matcher: String,
    /// The ARN of the role.
    pub role_arn: String,
    /// The mapping of the lowest comes first, one without it last, and of two the one that is listed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// Whether signatures can name a service so.
pub fn is_aws_service(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl AwsStsParameters {
    pub(super) fn of(document: &RunConfig) -> Option<Self> {
        let aws_sts_config = Some(document.aws_sts_config.clone()?);
        Some(Self { aws_sts_config, target_url: document.remote_url.clone() })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}
