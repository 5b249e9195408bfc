//! Annotations of workloads by which authors ask more of a proxy than ToolHive's fields can say.

use std::collections::BTreeMap;

use mcp_api::names::annotation::{ALLOWED_ORIGINS, FAIL_CLOSED, MCP_PATHS, OPEN_PATHS};
use mcp_runconfig::{MCP_ENDPOINTS, RunConfig, origin_problem};
use serde::Serialize;

use crate::{problem::Problem, settings::Settings};

/// The prefix of annotations that are ours.
const PREFIX: &str = "portcullis.dev/";
/// The most origins that an annotation may list.
const MAX_ORIGINS: usize = 64;

/// The requests of a workload's annotations to its proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Additions {
    /// The paths, and what becomes of calls that cannot be counted, as the document has them.
    #[serde(flatten)]
    pub paths: mcp_runconfig::Additions,
    /// Origins of the web pages that may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// The word on calls that cannot be counted, where it is neither of the two that there are.
    #[serde(skip)]
    unknown_word: Option<String>,
}

impl Additions {
    /// Reads the annotations of a workload: lists with commas.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let list = |key| {
            let text = annotations.and_then(|annotations| annotations.get(key));
            text.map(|text| text.split(',').map(|entry| entry.trim().to_owned()).collect()).unwrap_or_default()
        };
        let fail_closed = annotations.and_then(|annotations| annotations.get(FAIL_CLOSED));
        let paths = mcp_runconfig::Additions {
            mcp_paths: list(MCP_PATHS),
            open_paths: list(OPEN_PATHS),
            // An unknown word is refused at admission; where it was stored, the stricter reading holds.
            rate_limits_fail_closed: fail_closed.is_some_and(|word| word != "false"),
            ..mcp_runconfig::Additions::default()
        };
        let unknown_word = fail_closed.filter(|word| !["true", "false"].contains(&&***word)).cloned();
        Self { paths, allowed_origins: list(ALLOWED_ORIGINS), unknown_word }
    }

    /// Lists the annotations with the prefix of these that are none of them.
    pub fn unknown_keys(annotations: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = &str> {
        let ours = annotations.into_iter().flatten().map(|(key, _)| &**key).filter(|key| key.starts_with(PREFIX));
        ours.filter(|key| ![ALLOWED_ORIGINS, FAIL_CLOSED, MCP_PATHS, OPEN_PATHS].contains(key))
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lists the rules that they break. `no_paths` says why the proxy can serve no other paths than it does, where that is so.
    pub fn problems(&self, no_paths: Option<&str>) -> Vec<Problem> {
        let mut problems: Vec<Problem> = if let Some(why) = no_paths {
            self.path_keys().map(|key| problem(key, format!("has no effect, as {why}; remove it"))).collect()
        } else {
            let mcp = self.paths.mcp_path_problems().into_iter().map(|message| problem(MCP_PATHS, message));
            let open = self.paths.open_path_problems().into_iter().map(|message| problem(OPEN_PATHS, message));
            mcp.chain(open).collect()
        };
        if self.allowed_origins.len() > MAX_ORIGINS {
            let message = format!("has {} origins; {MAX_ORIGINS} are the most", self.allowed_origins.len());
            problems.push(problem(ALLOWED_ORIGINS, message));
        }
        let origins = self.allowed_origins.iter().take(MAX_ORIGINS).filter_map(|origin| origin_problem(origin));
        problems.extend(origins.map(|message| problem(ALLOWED_ORIGINS, message)));
        let unknown = self.unknown_word.iter();
        problems.extend(unknown.map(|word| {
            problem(FAIL_CLOSED, format!("{word:?} is neither \"true\" nor \"false\"; write one of them"))
        }));
        problems
    }

    /// The annotation that asks for paths and cannot be served by the proxy's image.
    pub fn unbuilt(&self, settings: &Settings) -> Option<&'static str> {
        if settings.can_run(&[MCP_ENDPOINTS]) {
            return None;
        }
        self.path_keys().next()
    }

    /// The annotations that ask for paths.
    pub fn path_keys(&self) -> impl Iterator<Item = &'static str> {
        let asked = [(MCP_PATHS, &self.paths.mcp_paths), (OPEN_PATHS, &self.paths.open_paths)];
        asked.into_iter().filter(|(_, paths)| !paths.is_empty()).map(|(key, _)| key)
    }

    /// Puts them into the document of the proxy, which has what configurations ask for.
    pub fn render(&self, document: &mut RunConfig) {
        document.portcullis.mcp_paths.clone_from(&self.paths.mcp_paths);
        document.portcullis.open_paths.clone_from(&self.paths.open_paths);
        document.portcullis.rate_limits_fail_closed =
            self.paths.rate_limits_fail_closed && document.rate_limit_config.is_some();
        for origin in &self.allowed_origins {
            if !document.allowed_origins.contains(origin) {
                document.allowed_origins.push(origin.clone());
            }
        }
    }
}

fn problem(key: &str, message: String) -> Problem {
    Problem::new(format!("metadata.annotations[{key}]"), message)
}
