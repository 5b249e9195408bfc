//! Members that ToolHive's document does not have. They stand under one member, `portcullis`, which ToolHive's runner ignores.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{AuthzConfig, ParseError};

/// The member `portcullis`. A proxy of this version refuses a document with a member in it that it does not know: it may guard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Additions {
    /// Whether the remote MCP server may be in a private network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_private_endpoint: bool,
    /// Paths that serve MCP beside the transport's own; guards judge requests to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_paths: Vec<String>,
    /// Paths, and prefixes as in `/docs/*`, that requests reach unjudged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_paths: Vec<String>,
    /// Networks of proxies before this one, whose `X-Forwarded-For` tells the address of the client.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "texts", deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// Whether calls with a rate limit are refused while Redis cannot count them. Otherwise they pass, uncounted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rate_limits_fail_closed: bool,
    /// A file with the token that says who exchanges callers' tokens on their behalf; empty: nobody is named. It is a JWT.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub actor_token_file: String,
    /// Policies that are tried: evaluated on live calls, counted, and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_policies: Option<AuthzConfig>,
}

/// The paths at which every proxy may serve MCP.
const MCP: [&str; 2] = ["/mcp", "/sse"];
/// The most paths in one list.
const MAX_PATHS: usize = 32;
/// The longest path, in bytes.
const MAX_PATH: usize = 256;

impl Additions {
    /// Checks the paths.
    pub(crate) fn check(&self) -> Result<(), ParseError> {
        let lists = [("mcp_paths", self.mcp_path_problems()), ("open_paths", self.open_path_problems())];
        match lists.into_iter().find_map(|(list, problems)| Some((list, problems.into_iter().next()?))) {
            Some((list, problem)) => Err(ParseError::new(format!("portcullis.{list}"), problem, "mend the path")),
            None => Ok(()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lists the problems of [`mcp_paths`](Self::mcp_paths), a clause each.
    pub fn mcp_path_problems(&self) -> Vec<String> {
        problems(&self.mcp_paths, path_problem)
    }

    /// Lists the problems of [`open_paths`](Self::open_paths), a clause each.
    pub fn open_path_problems(&self) -> Vec<String> {
        problems(&self.open_paths, |path| {
            let exact = path.strip_suffix('*').unwrap_or(path);
            let folder = exact != path;
            if folder && !exact.ends_with('/') {
                return Some("has a * that is not its last segment; write a prefix as /docs/*".to_owned());
            }
            // The prefix of everything ends in the slash that it begins with.
            let text = if folder && exact != "/" { exact.trim_end_matches('/') } else { exact };
            path_problem(text).or_else(|| {
                let covered = MCP.into_iter().chain(self.mcp_paths.iter().map(String::as_str));
                let covered = covered.map(str::to_owned).find(|mcp| covers(exact, folder, mcp))?;
                Some(format!("covers {covered}, where MCP is served and judged"))
            })
        })
    }
}

fn texts<S: Serializer>(networks: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(networks.iter().map(IpNet::to_string))
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let network = |text: &String| {
        let error = |problem| D::Error::custom(format!("{problem}; list the networks of your ingresses alone"));
        trusted_proxies(text).map_err(error)
    };
    Vec::deserialize(deserializer)?.iter().map(network).collect()
}

/// Reads a network of proxies that are [trusted](Additions::trusted_proxies).
///
/// # Errors
/// A clause that quotes `text`.
pub fn trusted_proxies(text: &str) -> Result<IpNet, String> {
    match text.parse::<IpNet>() {
        Ok(network) if network.prefix_len() == 0 => Err(format!("{text:?} would let every caller claim any address")),
        Ok(network) => Ok(network),
        Err(_) => Err(format!("{text:?} is no network; write an address and a length, as in 10.0.0.0/8")),
    }
}

fn problems(paths: &[String], problem: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let number = (paths.len() > MAX_PATHS).then(|| format!("has {} paths; {MAX_PATHS} are the most", paths.len()));
    let each = paths.iter().take(MAX_PATHS).filter_map(|path| Some(format!("{path:?} {}", problem(path)?)));
    number.into_iter().chain(each).collect()
}

fn path_problem(path: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()+=:@/".contains(&byte);
    let mut segments = path.split('/').skip(1).peekable();
    let mut odd = false;
    while let Some(segment) = segments.next() {
        // Only the last segment may be empty: it is the one behind a last slash.
        odd |= matches!(segment, "." | "..") || segment.is_empty() && segments.peek().is_some();
    }
    if !path.starts_with('/') || path.len() > MAX_PATH || odd || !path.bytes().all(is_plain) {
        let form = "letters, digits and -._~!$&'()+=:@ between single slashes, without . and .. as segments";
        return Some(format!("is no path to compare with; write one that begins with a slash and has {form}"));
    }
    let own = matches!(path.trim_end_matches('/'), "/health" | "/readyz" | "/metrics" | "/.well-known");
    (own || path.starts_with("/.well-known/")).then(|| "is served by the proxy itself".to_owned())
}

/// Whether some servers could take a request to the open path for one to `mcp`: many compare paths without case, and without slashes and dots
/// at the end.
fn covers(open: &str, folder: bool, mcp: &str) -> bool {
    let plain = |path: &str| path.trim_end_matches(['/', '.']).to_ascii_lowercase();
    let (open, mcp) = (plain(open), plain(mcp));
    open == mcp || folder && mcp.starts_with(&format!("{open}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn additions(mcp: &[&str], open: &[&str]) -> Additions {
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        Additions { mcp_paths: list(mcp), open_paths: list(open), ..Additions::default() }
    }

    #[test]
    fn paths_that_two_servers_may_read_differently_are_refused() {
        for (path, good) in [
            ("/", true),
            ("/api/mcp", true),
            ("/api/mcp/", true),
            ("/v1:call/@me", true),
            ("", false),
            ("api", false),
            ("//api", false),
            ("/api//mcp", false),
            ("/api/../mcp", false),
            ("/./mcp", false),
            ("/a%2fb", false),
            ("/a;b", false),
            ("/a\\b", false),
            ("/a?b", false),
            ("/a b", false),
            ("/a/*", false),
            ("/health", false),
            ("/metrics/", false),
            ("/.well-known/x", false),
        ] {
            let additions = additions(&[path], &[]);
            assert_eq!(additions.mcp_path_problems().is_empty(), good, "{path:?}");
        }
        assert_eq!(additions(&["/a"; 33], &[]).mcp_path_problems(), ["has 33 paths; 32 are the most"]);
    }

    #[test]
    fn no_open_path_covers_an_endpoint_of_mcp() {
        for (mcp, open, good) in [
            (None, "/docs", true),
            (None, "/docs/*", true),
            (None, "/mcpx/*", true),
            (None, "/mcp", false),
            (None, "/MCP/", false),
            (None, "/mcp.", false),
            (None, "/mcp/*", false),
            (None, "/*", false),
            (None, "/sse", false),
            (None, "/docs*", false),
            (None, "*", false),
            (None, "/do*cs", false),
            (Some("/api/mcp"), "/api/*", false),
            (Some("/api/mcp"), "/API/MCP", false),
            (Some("/api/mcp"), "/api", true),
            (Some("/"), "/docs/*", true),
            (Some("/"), "/", false),
        ] {
            let additions = additions(mcp.as_slice(), &[open]);
            assert_eq!(additions.open_path_problems().is_empty(), good, "{mcp:?} {open:?}");
        }
    }
}
