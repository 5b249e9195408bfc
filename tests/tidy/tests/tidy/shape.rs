//! What ARCHITECTURE.md says of the shape of the crates: what knows of what, and how large they are.

use std::collections::BTreeSet;

use portcullis_tidy::{Graph, Imports, sources};

const OPERATOR: &str = "mcp/operator/src/";
const PLAN: &str = "mcp/plan/src/";
const KINDS: &str = "mcp/operator/src/kinds/";

/// Every kind of the contract, whether it is built or not.
const ALL_KINDS: [&str; 14] = [
    "EmbeddingServer",
    "MCPAuthzConfig",
    "MCPExternalAuthConfig",
    "MCPGroup",
    "MCPOIDCConfig",
    "MCPRegistry",
    "MCPRemoteProxy",
    "MCPServer",
    "MCPServerEntry",
    "MCPTelemetryConfig",
    "MCPToolConfig",
    "MCPWebhookConfig",
    "VirtualMCPCompositeToolDefinition",
    "VirtualMCPServer",
];
/// Kinds whose name without `MCP` is a word of every operator, or of the specs of workloads.
const GENERAL: [&str; 4] = ["AuthzConfig", "Group", "Registry", "Server"];

/// The most lines that a crate of `mcp/` may have in `src/`.
const LINES: usize = 8_000;

/// The most that the second operator on the SDK may have there: were it more, the SDK would leave too much to its users.
const LINES_OF_SECOND: usize = 2_000;

/// How a kind is named in code and text, in lower case and without `_` and `-`.
fn spellings(kind: &str) -> Vec<String> {
    let short = kind.strip_prefix("MCP").filter(|short| !GENERAL.contains(short));
    [kind].into_iter().chain(short).map(str::to_lowercase).collect()
}

#[test]
fn the_operator_names_no_kind_outside_of_its_folder() {
    let shared = |path: &str| path.starts_with(PLAN) || (path.starts_with(OPERATOR) && !path.starts_with(KINDS));
    let shared = sources(shared).unwrap();
    let in_plan = ["reference/", "config/", "workload/", "guards/"].map(|concept| format!("{PLAN}{concept}"));
    let in_operator = ["config/", "workload/", "controllers/", "admission.rs", "subject.rs"];
    for concept in in_operator.map(|concept| format!("{OPERATOR}{concept}")).iter().chain(&in_plan) {
        assert!(shared.iter().any(|source| source.path.starts_with(concept)), "{concept} has another name now");
    }
    let words: Vec<String> = ALL_KINDS.into_iter().flat_map(spellings).collect();
    let found: Vec<String> = shared
        .iter()
        .flat_map(|source| {
            let text = source.without_tests();
            let hits = text.lines().filter(|line| {
                let line = line.to_lowercase().replace(['_', '-'], "");
                words.iter().any(|word| line.contains(word))
            });
            hits.map(|line| format!("{}: {}", source.path, line.trim())).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "what is particular to a kind belongs to kinds/:\n{}", found.join("\n"));
}

#[test]
fn a_kind_is_a_folder_and_a_line_of_registration() {
    let files = sources(|path| path.starts_with(KINDS)).unwrap();
    let list = files.iter().find(|source| source.path == format!("{KINDS}mod.rs")).unwrap().shipped_code();
    let declared: BTreeSet<&str> =
        list.lines().filter_map(|line| line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'))).collect();
    let in_folders = files.iter().filter_map(|source| source.path.strip_prefix(KINDS)?.split_once('/'));
    assert_eq!(declared, in_folders.map(|(folder, _)| folder).collect(), "a module of kinds/ is a private folder");
    let beside = files.iter().map(|source| &source.path[KINDS.len()..]).filter(|path| !path.contains('/'));
    assert_eq!(beside.collect::<Vec<_>>(), ["mod.rs"], "beside the folders there is the list of kinds only");
    let registered = list.matches("::<").count();
    assert_eq!(registered, declared.len(), "each kind is registered once:\n{list}");
}

#[test]
fn a_kind_is_known_to_the_list_of_kinds_alone() {
    let imports = Imports::of_crate("mcp/operator").unwrap();
    let kind = |module: &str| module.strip_prefix("kinds::").map(|rest| rest.split("::").next().unwrap().to_owned());
    assert!(imports.edges().any(|(from, _)| kind(&from).is_some()), "kinds/ has another name now");
    let found: Vec<_> = imports.edges().filter(|(from, to)| kind(to).is_some() && kind(from) != kind(to)).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn imports_of_modules_form_no_circle() {
    let roots = sources(|path| path.ends_with("/src/lib.rs")).unwrap();
    let crates: BTreeSet<&str> = roots.iter().filter_map(|root| root.path.strip_suffix("/src/lib.rs")).collect();
    for folder in ["sdk/operator", "mcp/operator", "dynamo/webhooks"] {
        assert!(crates.contains(folder), "{folder} is not among {crates:?}");
    }
    let mut found = Vec::new();
    for folder in crates {
        let circles = Imports::of_crate(folder).unwrap().circles();
        found.extend(circles.into_iter().map(|circle| format!("{folder}: {circle}")));
    }
    assert!(found.is_empty(), "let one of the modules stop importing:\n{}", found.join("\n"));
}

#[test]
fn a_crate_of_the_platform_fits_one_reader() {
    let crates = Graph::resolve().unwrap().members_in("mcp");
    assert!(crates.contains("mcp-operator"), "{crates:?}");
    for name in crates {
        let folder = format!("mcp/{}/src/", name.strip_prefix("mcp-").unwrap());
        let files =
            sources(|path| path.strip_prefix(&folder).is_some_and(|path| path.strip_suffix(".rs").is_some())).unwrap();
        assert!(!files.is_empty(), "{name} does not lie in {folder}");
        let lines: usize = files.iter().map(|source| source.text.lines().count()).sum();
        assert!(lines <= LINES, "{name} has {lines} lines in {folder}, {LINES} are allowed; split it by concept");
    }
}

#[test]
fn a_second_operator_on_the_sdk_is_a_small_crate() {
    let files = sources(|path| {
        path.strip_prefix("dynamo/webhooks/src/").is_some_and(|path| path.strip_suffix(".rs").is_some())
    });
    let lines: usize = files.unwrap().iter().map(|source| source.text.lines().count()).sum();
    assert!((1..LINES_OF_SECOND).contains(&lines), "{lines} lines; fewer than {LINES_OF_SECOND} are allowed");
}
