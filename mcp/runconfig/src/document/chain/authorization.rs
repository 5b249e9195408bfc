//! Authorization: the policies of a document, or the service that decides (toolhive-auth §4, toolhive-runner §2.16).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::ParseError;

/// `type` of the middleware that decides who may call what.
pub const AUTHORIZATION: &str = "authorization";

/// `type` of the middleware that tries policies, which is ours.
pub const SHADOW_AUTHORIZATION: &str = "shadow-authorization";

/// The version of an authorization document that is written. No reader checks it.
const VERSION: &str = "1.0";

/// The authorization of calls. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuthzConfig {
    /// The version of the format.
    pub version: String,
    /// The word for which of the two members below counts.
    #[serde(rename = "type")]
    pub kind: AuthzKind,
    /// Cedar policies.
    pub cedar: Option<CedarConfig>,
    /// A policy decision point.
    pub pdp: Option<PdpConfig>,
    /// Whether members are written in the order of their names: ToolHive's operator does so with what is not in the workload's own spec.
    #[serde(skip)]
    pub sorted: bool,
}

/// The word for who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthzKind {
    /// The proxy, by Cedar policies.
    #[default]
    #[serde(rename = "cedarv1")]
    Cedar,
    /// A policy decision point that is asked over HTTP.
    #[serde(rename = "httpv1")]
    Http,
}

/// Cedar policies, and the claims that they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CedarConfig {
    /// Texts of policies, each of exactly one.
    pub policies: Vec<String>,
    /// Entities beside those of a request, as Cedar's JSON; empty means none.
    pub entities_json: String,
    /// The identity provider whose tokens have the claims; empty means the request's own token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub primary_upstream_provider: String,
    /// The claim with the caller's groups; empty means the usual ones.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_claim_name: String,
    /// The claim with the caller's roles, which count as groups; empty means none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role_claim_name: String,
    /// The type of the entities that groups and roles become; empty means `THVGroup`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_entity_type: String,
    /// Claims that are lists of words, whether a token has them as an array or as one text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub multi_valued_claims: Vec<String>,
}

/// A policy decision point, and what it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PdpConfig {
    /// The address. It is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<PdpHttp>,
    /// The facts that it is told beside who asks for what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<PdpContext>,
    /// The names by which it is told claims. It is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_mapping: Option<ClaimMapping>,
}

/// The address of a policy decision point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PdpHttp {
    /// The URL before `/decision`.
    pub url: String,
    /// Seconds until a question counts as refused; 0 means 30.
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: u32,
    /// Turns certificate checks off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
}

/// The facts that a policy decision point is told beside who asks for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PdpContext {
    /// The arguments of the call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_args: bool,
    /// The feature, the operation and the name of what is called.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_operation: bool,
}

/// The names by which a policy decision point is told claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMapping {
    /// Names with the prefix `m`, as the Manetu policy engine reads them.
    Mpe,
    /// The names of OpenID Connect.
    Standard,
}

/// Parameters of `authorization`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuthorizationParameters {
    /// A file that ToolHive's runner reads the configuration from. Only a document that is about to be refused has it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "no_path")]
    pub config_path: Option<String>,
    /// The configuration. It is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_data: Option<AuthzConfig>,
}

impl Default for AuthzConfig {
    fn default() -> Self {
        Self { version: VERSION.to_owned(), kind: AuthzKind::default(), cedar: None, pdp: None, sorted: false }
    }
}

impl AuthzConfig {
    /// The configuration in which the proxy decides by these policies.
    pub fn of_policies(cedar: CedarConfig) -> Self {
        Self { cedar: Some(cedar), ..Self::default() }
    }

    /// Refuses a configuration that lacks what its type needs. Whether policies parse is not looked at.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to write instead.
    pub fn check(&self) -> Result<(), ParseError> {
        let missing = |field: &str, fix: &str| Err(ParseError::new(field, "is missing or empty", fix));
        match (self.kind, &self.cedar, &self.pdp) {
            (AuthzKind::Cedar, None, _) => missing("cedar", "write the policies there"),
            (AuthzKind::Cedar, Some(cedar), _) if cedar.policies.is_empty() => {
                missing("cedar.policies", "write at least one policy")
            }
            (AuthzKind::Http, _, None) => missing("pdp", "say there where the policy decision point is"),
            (AuthzKind::Http, _, Some(pdp)) if pdp.http.as_ref().is_none_or(|http| http.url.is_empty()) => {
                missing("pdp.http.url", "write an http or https URL")
            }
            (AuthzKind::Http, _, Some(PdpConfig { claim_mapping: None, .. })) => {
                missing("pdp.claim_mapping", "set it to \"mpe\" or \"standard\"")
            }
            _ => Ok(()),
        }
    }
}

impl AuthorizationParameters {
    /// The parameters for a document with these members; none where they do not ask for authorization.
    pub(super) fn of(config: Option<&AuthzConfig>, path: &str) -> Option<Self> {
        let config_path = Some(path.to_owned()).filter(|path| !path.is_empty());
        let asked = config_path.is_some() || config.is_some();
        asked.then(|| Self { config_path, config_data: config.cloned() })
    }
}

/// Writes the member of its type alone.
impl Serialize for AuthzConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            version: &'a str,
            r#type: AuthzKind,
            #[serde(skip_serializing_if = "Option::is_none")]
            cedar: Option<&'a CedarConfig>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pdp: Option<&'a PdpConfig>,
        }
        let cedar = self.cedar.as_ref().filter(|_| self.kind == AuthzKind::Cedar);
        let pdp = self.pdp.as_ref().filter(|_| self.kind == AuthzKind::Http);
        let document = Document { version: &self.version, r#type: self.kind, cedar, pdp };
        if self.sorted {
            let mut document = serde_json::to_value(document).map_err(serde::ser::Error::custom)?;
            document.sort_all_objects();
            return document.serialize(serializer);
        }
        document.serialize(serializer)
    }
}

fn no_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.filter(|path| !path.is_empty()) {
        None => Ok(None),
        Some(path) => Err(D::Error::custom(format!("{path:?} is not read; write what is in it into the document"))),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}
