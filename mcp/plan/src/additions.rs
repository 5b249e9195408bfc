//! What authors ask of a proxy beyond ToolHive's fields, in annotations of the workload.

use std::collections::BTreeMap;

use mcp_api::names::annotation::{ALLOWED_ORIGINS, MCP_PATHS, OPEN_PATHS};
use mcp_runconfig::{MCP_ENDPOINTS, RunConfig, origin_problem};
use serde::Serialize;

use crate::{problem::Problem, settings::Settings};

/// The most origins that an annotation may list.
const MAX_ORIGINS: usize = 64;

/// What the annotations of a workload ask of its proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Additions {
    /// Paths that serve MCP, beside the transport's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_paths: Vec<String>,
    /// Paths that requests reach unjudged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_paths: Vec<String>,
    /// Origins of the web pages that may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
}

impl Additions {
    /// Reads the annotations of a workload: lists with commas.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let list = |key| {
            let text = annotations.and_then(|annotations| annotations.get(key));
            text.map(|text| text.split(',').map(|entry| entry.trim().to_owned()).collect()).unwrap_or_default()
        };
        Self { mcp_paths: list(MCP_PATHS), open_paths: list(OPEN_PATHS), allowed_origins: list(ALLOWED_ORIGINS) }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with them. `no_paths` says why the proxy can serve no other paths than it does, where that is so.
    pub fn problems(&self, no_paths: Option<&str>) -> Vec<Problem> {
        let document = self.document();
        let mut problems = Vec::new();
        for (key, list, wrong) in [
            (MCP_PATHS, &self.mcp_paths, document.mcp_path_problems()),
            (OPEN_PATHS, &self.open_paths, document.open_path_problems()),
        ] {
            match no_paths.filter(|_| !list.is_empty()) {
                Some(why) => problems.push(problem(key, format!("has no effect, as {why}; remove it"))),
                None => problems.extend(wrong.into_iter().map(|message| problem(key, message))),
            }
        }
        if self.allowed_origins.len() > MAX_ORIGINS {
            let message = format!("has {} origins; {MAX_ORIGINS} are the most", self.allowed_origins.len());
            problems.push(problem(ALLOWED_ORIGINS, message));
        }
        let origins = self.allowed_origins.iter().take(MAX_ORIGINS).filter_map(|origin| origin_problem(origin));
        problems.extend(origins.map(|message| problem(ALLOWED_ORIGINS, message)));
        problems
    }

    /// The annotation that asks for paths and cannot be served by the proxy's image.
    pub fn unbuilt(&self, settings: &Settings) -> Option<&'static str> {
        if settings.can_run(&[MCP_ENDPOINTS]) {
            return None;
        }
        let asked = [(MCP_PATHS, &self.mcp_paths), (OPEN_PATHS, &self.open_paths)];
        asked.into_iter().find(|(_, paths)| !paths.is_empty()).map(|(key, _)| key)
    }

    /// Puts them into the document of the proxy.
    pub fn render(&self, document: &mut RunConfig) {
        let mcp_runconfig::Additions { mcp_paths, open_paths, .. } = self.document();
        (document.portcullis.mcp_paths, document.portcullis.open_paths) = (mcp_paths, open_paths);
        for origin in &self.allowed_origins {
            if !document.allowed_origins.contains(origin) {
                document.allowed_origins.push(origin.clone());
            }
        }
    }

    fn document(&self) -> mcp_runconfig::Additions {
        mcp_runconfig::Additions {
            mcp_paths: self.mcp_paths.clone(),
            open_paths: self.open_paths.clone(),
            ..mcp_runconfig::Additions::default()
        }
    }
}

fn problem(key: &str, message: String) -> Problem {
    Problem::new(format!("metadata.annotations[{key}]"), message)
}
