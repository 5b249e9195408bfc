//! The terms of a workload's reference to a login, which every kind of workload has.

use http::Uri;
use mcp_plan::{oauth::scope_problems, problem::Problem};
use serde::{Deserialize, Serialize};

/// The terms on which a workload is opened by tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginTerms {
    /// The audience that tokens must be issued for.
    pub audience: String,
    /// The scopes that clients are told to ask for.
    pub scopes: Vec<String>,
    /// The address by which clients know the workload, where it is not the one of its Service.
    pub resource_url: Option<String>,
}

impl LoginTerms {
    /// Lists the rules that they break in the reference at `field`.
    pub fn problems(&self, field: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.audience.trim().is_empty() {
            let message =
                "is empty: a token for any other server would open this one; write the audience of this server";
            problems.push(Problem::new(format!("{field}.audience"), message));
        }
        if let Some(url) = self.resource_url.as_deref().filter(|url| !is_resource(url)) {
            let message = format!(
                "{url:?} is not the URL of a resource; write one of http or https without a fragment or a user name, such as https://mcp.example.com/mcp"
            );
            problems.push(Problem::new(format!("{field}.resourceUrl"), message));
        }
        problems.extend(scope_problems(&format!("{field}.scopes"), Some(&self.scopes)));
        problems
    }
}

/// Whether it identifies a protected resource (RFC 8707 §2): an absolute URL without a fragment, nor a user.
fn is_resource(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let http = matches!(uri.scheme_str(), Some("http" | "https"));
    let named = uri.authority().is_some_and(|it| !it.host().is_empty() && !it.as_str().contains('@'));
    http && named && !url.contains('#')
}
