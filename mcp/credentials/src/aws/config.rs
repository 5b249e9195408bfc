//! The settings that the document asks for, checked at the start: an error names the member and the fix.

use std::sync::Arc;

use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::{AwsStsParameters, is_aws_service};

use super::role::Roles;
use super::session::Scope;
use super::{AwsRoles, Inner, NAMES};
use crate::asking::Asking;
use crate::provider;

const CONFIG: &str = "parameters.aws_sts_config";
/// The variables that name another STS than the region's, as AWS' own programs read them. The first that is set counts.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"];
/// The seconds that a session may last.
const DURATIONS: std::ops::RangeInclusive<u32> = 900..=43200;

impl AwsRoles {
    /// The roles that `parameters` ask for.
    ///
    /// # Errors
    /// The member at fault.
    pub(crate) fn new(parameters: AwsStsParameters, context: &BuildContext) -> Result<Self, BuildError> {
        let Some(config) = parameters.aws_sts_config else {
            return Err(context.error(CONFIG, "is missing", "name the region and the roles"));
        };
        if parameters.target_url.is_empty() {
            let problem = "is missing or empty: only a remote server takes signed requests";
            return Err(context.error("parameters.target_url", problem, "write remote_url"));
        }
        if !context.settings.login {
            let problem = "awssts needs callers who log in: a role goes by claims that somebody has checked";
            return Err(context.error("type", problem, "write oidc_config"));
        }
        let error = |member: &str, problem: &str, fix: &str| context.error(&format!("{CONFIG}.{member}"), problem, fix);
        if !is_region(&config.region) {
            return Err(error("region", "is no region of AWS", "write one such as eu-central-1"));
        }
        let service = if config.service.is_empty() { "aws-mcp" } else { &config.service };
        if !is_aws_service(service) {
            let fix = "write the name by which signatures know it, as in aws-mcp";
            return Err(error("service", "is no service of AWS", fix));
        }
        let duration = if config.session_duration == 0 { 3600 } else { config.session_duration };
        if !DURATIONS.contains(&duration) {
            let fix = "write a number of seconds from 900 to 43200";
            return Err(error("session_duration", "is no time that AWS gives", fix));
        }
        let roles = Roles::new(&config).map_err(|(member, problem, fix)| error(&member, &problem, fix))?;
        let variable = ENDPOINTS
            .into_iter()
            .find_map(|name| (context.settings.variables)(name).filter(|url| !url.is_empty()).map(|url| (name, url)));
        let (member, url) = variable.unwrap_or_else(|| ("region", endpoint(&config.region)));
        let client = provider::client("STS", &url, context)
            .map_err(|problem| error(member, &problem, "name an STS that may be called"))?;
        let host = client.server().host().unwrap_or_default();
        let session_name = if config.session_name_claim.is_empty() { "sub" } else { &config.session_name_claim };
        Ok(Self(Arc::new(Inner {
            asking: Asking::new(&NAMES, host, &context.settings.metrics),
            client,
            duration,
            roles,
            scope: Scope { region: config.region.as_str().into(), service: service.into() },
            session_name: session_name.to_owned(),
        })))
    }
}

/// Whether it is one, as in `us-gov-west-1`: it becomes a part of a host's name.
fn is_region(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let [first, words @ .., number] = &*parts else { return false };
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    first.len() == 2 && is_word(first) && !words.is_empty() && words.iter().all(is_word) && is_number
}

/// The STS of a region.
fn endpoint(region: &str) -> String {
    let end = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://sts.{region}.amazonaws.com{end}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_has_its_sts() {
        for (region, expected) in [
            ("eu-central-1", Some("https://sts.eu-central-1.amazonaws.com/")),
            ("us-gov-west-1", Some("https://sts.us-gov-west-1.amazonaws.com/")),
            ("cn-north-1", Some("https://sts.cn-north-1.amazonaws.com.cn/")),
            ("", None),
            ("eu", None),
            ("eu-1", None),
            ("eu-central-1.example.com/", None),
            ("EU-central-1", None),
        ] {
            assert_eq!(is_region(region).then(|| endpoint(region)).as_deref(), expected, "{region}");
        }
    }
}
