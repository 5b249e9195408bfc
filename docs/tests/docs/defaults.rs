//! The tables that are written by hand (settings, limits, production) name the defaults of the code.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis::certificates::RotationTiming;
use portcullis::manifest::{ServiceRef, mutating_configuration};
use portcullis::operator::Operator;
use portcullis::server::Limits;
use portcullis::webhooks::{Context, Mutate, Mutation, Webhooks};
use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the row that begins with `first`.
fn row(page: &str, first: &str) -> Vec<String> {
    let text = read(&format!("src/{page}"));
    let line = text.lines().find(|line| line.starts_with(&format!("| {first}")));
    let line = line.unwrap_or_else(|| panic!("no row of {page} begins with {first}"));
    line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

/// The value of a private constant, as its source writes it.
fn constant(source: &str, name: &str) -> String {
    let text = read(&format!("../sdk/webhook/src/{source}"));
    let after = text.split(&format!("const {name}: ")).nth(1).unwrap_or_else(|| panic!("{source} has no {name}"));
    after.split(" = ").nth(1).unwrap().split(';').next().unwrap().to_owned()
}

fn mebibytes(source: &str, name: &str) -> String {
    format!("{} MiB", constant(source, name).strip_suffix(" * 1024 * 1024").unwrap())
}

/// A webhook of which nothing is said, as it is generated.
fn silent() -> Value {
    let handler = |_: ConfigMap, _: Context| async { Mutation::unchanged() };
    let entries = Webhooks::new().mutate(Mutate::<ConfigMap>::new("one").on_create(handler)).manifests().unwrap();
    let service = ServiceRef { namespace: "n".into(), name: "s".into(), port: 443 };
    serde_json::to_value(mutating_configuration("c", &entries, &service)).unwrap()["webhooks"][0].take()
}

#[test]
fn the_defaults_in_the_table_are_those_of_a_plain_webhook() {
    let silent = silent();
    let word = |member: &str| format!("`{}`", silent[member].as_str().unwrap());
    for (method, says) in [
        (".failure_policy", word("failurePolicy")),
        (".match_policy", word("matchPolicy")),
        (".reinvocation_policy", word("reinvocationPolicy")),
        (".timeout", format!("{} s", silent["timeoutSeconds"])),
        (".concurrency", constant("settings.rs", "CONCURRENCY")),
        (".body_limit", mebibytes("conversion/mod.rs", "BODY")),
    ] {
        assert_eq!(row("reference/settings.md", &format!("`{method}("))[1], says, "{method}");
    }
    assert!(
        row("reference/settings.md", "`.side_effects(")[2].contains(&format!("instead of {}", word("sideEffects")))
    );
    for selects in ["namespaceSelector", "objectSelector", "matchConditions"] {
        assert!(silent[selects].is_null(), "{selects}: unless said, all are selected");
    }
}

/// The table has every setting of a webhook or a conversion, and no other.
#[test]
fn every_setting_is_in_the_table() {
    let mut code = BTreeSet::new();
    for (source, begins) in [
        ("settings.rs", "macro_rules! settings"),
        ("handler.rs", "macro_rules! handlers"),
        ("validate.rs", "impl<K: AdmissionObject> Validate<K>"),
        ("mutate.rs", "impl<K: AdmissionObject + Serialize + Clone> Mutate<K>"),
        ("conversion/mod.rs", "impl<H: Version> Convert<H>"),
    ] {
        let text = read(&format!("../sdk/webhook/src/{source}"));
        let (_, shipped) = text.split_once(begins).unwrap_or_else(|| panic!("{source} has no {begins}"));
        // Up to what it is to others: an implementation of a trait.
        let shipped = shipped.lines().take_while(|line| !(line.starts_with("impl") && line.contains(" for ")));
        for method in shipped.collect::<Vec<_>>().join("\n").split(" pub fn ").skip(1) {
            let name: String = method.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            code.insert(name);
        }
    }
    let page = read("src/reference/settings.md");
    let (settings, rest) = page.split_once("Beside the object").unwrap();
    let (_, conversion) = rest.split_once("Of `Convert`").unwrap();
    let mut documented = BTreeSet::new();
    for row in [settings, conversion].iter().flat_map(|part| part.lines()).filter(|line| line.starts_with("| `")) {
        let cell = row.split(" | ").next().unwrap();
        for method in cell.split('`').skip(1).step_by(2).filter(|word| word.contains('(')) {
            let name = method.trim_start_matches('.').split(['(', ':']).next().unwrap();
            documented.insert(name.to_owned());
        }
    }
    assert_eq!(documented, code);
}

#[test]
fn the_limits_are_those_of_the_server() {
    let Limits { connections, head_bytes, .. } = Limits::default();
    let page = "how-to/limits.md";
    for (first, says) in [
        ("connections", connections.to_string()),
        ("head of a request", format!("{} KiB", head_bytes / 1024)),
        ("reviews of one webhook", format!("{}, or", constant("settings.rs", "CONCURRENCY"))),
        ("body of a conversion review", format!("{}, or", mebibytes("conversion/mod.rs", "BODY"))),
        ("bytes of all admission bodies", mebibytes("memory.rs", "BODIES")),
        ("memory of all conversions", mebibytes("memory.rs", "CONVERSIONS")),
    ] {
        let limit = &row(page, first)[1];
        assert!(limit.starts_with(&says), "{first}: {limit}, and not {says}");
    }
}

/// The table of production has the generated values, the defaults of flags, and the timing of certificates.
#[test]
fn the_advice_is_the_default_that_the_table_names() {
    let operator = Operator::new("my-operator");
    let command = operator.command();
    let default = |command_name: &str, flag: &str| {
        let command = command.get_subcommands().find(|command| command.get_name() == command_name).unwrap();
        let flag = command.get_arguments().find(|argument| argument.get_long() == Some(flag)).unwrap();
        flag.get_default_values()[0].to_string_lossy().into_owned()
    };
    // A test of mcp-operator compares these files with what it generates.
    let text = read("../deploy/operator.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let of = |kind: &str| &objects.iter().find(|object| object["kind"] == kind).unwrap()["spec"];
    let (deployment, pod) = (of("Deployment"), &of("Deployment")["template"]["spec"]);
    let resources = &pod["containers"][0]["resources"];
    let timing = RotationTiming::default();
    assert_eq!(timing.leaf_validity.as_hours() / 24, 365, "a year, says the table");
    assert_eq!(timing.ca_validity.as_hours() / 24, 3650, "ten years, says the table");
    assert_eq!(default("generate", "replicas"), deployment["replicas"].to_string());
    assert_eq!(default("run", "drain-delay"), "5s", "five seconds, says the table");
    assert!(resources["limits"].get("cpu").is_none(), "no limit of CPU, says the table");
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (advice, says) in [
        ("keep webhooks on", format!("`--webhooks {}`", default("run", "webhooks"))),
        ("fail closed", format!("`failurePolicy: {}`", silent()["failurePolicy"].as_str().unwrap())),
        ("rotate certificates", format!("renewed in its last {} days", timing.leaf_left.as_hours() / 24)),
        ("rotate certificates", format!("rotated in its last {} days", timing.ca_left.as_hours() / 24)),
        ("more than one replica", format!("{}, ", deployment["replicas"])),
        (
            "more than one replica",
            format!("`maxUnavailable: {}`", deployment["strategy"]["rollingUpdate"]["maxUnavailable"]),
        ),
        ("survive a drained node", format!("`maxUnavailable: {}`", of("PodDisruptionBudget")["maxUnavailable"])),
        ("drain on shutdown", format!("`terminationGracePeriodSeconds` is {}", pod["terminationGracePeriodSeconds"])),
        ("one replica that writes", format!("`--leader-elect {}`", default("run", "leader-elect"))),
        (
            "do not throttle",
            format!(
                "{} and {} asked for, {} at most",
                text(&resources["requests"]["cpu"]),
                text(&resources["requests"]["memory"]),
                text(&resources["limits"]["memory"])
            ),
        ),
        ("run with few rights", format!("uid {}", pod["securityContext"]["runAsUser"])),
        ("short timeouts", format!("{} s in the configuration", silent()["timeoutSeconds"])),
    ] {
        let documented = &row("reference/production.md", advice)[1];
        assert!(documented.contains(&says), "{advice}: {documented}, and not {says}");
    }
}
