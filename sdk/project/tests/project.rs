//! `portcullis generate project`, as its user runs it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn generate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(["generate", "project"]).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its own tests: in the process, and with the binary on a real API server.
#[test]
fn a_new_operator_passes_its_own_tests_outside_of_the_workspace() {
    let folder = TempDir::new().unwrap();
    let written = generate(folder.path(), &["wine-cellar-operator", "--group", "cellar.example.com"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let project = folder.path().join("wine-cellar-operator");
    let kind = fs::read_to_string(project.join("src/v1.rs")).unwrap();
    for name in [r#"group = "cellar.example.com""#, r#"kind = "WineCellar""#] {
        assert!(kind.contains(name), "{kind}");
    }

    // With the versions, the profile and the features of the workspace, and into its target folder: what both depend on is
    // compiled once, but for the SDK, which belongs to another workspace here.
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    fs::write(project.join("Cargo.toml"), manifest + include_str!("features.toml")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).current_dir(&project).env("CARGO_TARGET_DIR", &target);
        // The variables that a runner of tests sets for its own builds would have all be compiled a second time.
        for variable in ["RUSTC_BOOTSTRAP", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"] {
            cargo.env_remove(variable);
        }
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only").output().unwrap()
    };
    let dependencies = ["--quiet", "--config", "profile.dev.package.'*'.debug=false"];
    let mut tested = cargo(&[&["test", "--offline"][..], &dependencies].concat());
    if text(&tested.stderr).contains("--offline") {
        // A crate that the workspace does not use was never fetched on this machine.
        tested = cargo(&[&["test"][..], &dependencies].concat());
    }
    let said = text(&tested.stdout);
    assert!(tested.status.success(), "{said}\n{}", text(&tested.stderr));
    assert!(said.contains("2 passed"), "{said}");
    renders_what_is_generated(&project.join("chart"), &target.join("debug/wine-cellar-operator"));
}

fn renders_what_is_generated(chart: &Path, operator: &Path) {
    portcullis_charts::generate(operator, &["crds", "--out", &chart.join("files").display().to_string()]);
    let listen = serde_json::json!({ "webhook": { "port": 10250 }, "bindAddress": "::", "healthPort": 8082 });
    let flags = ["--bind=[::]:10250", "--health-bind=[::]:8082"];
    for ([name, namespace], values, flags) in [
        (["wine-cellar-operator", "wine-cellar-operator-system"], serde_json::json!({}), &[][..]),
        (["blue", "here"], listen, &flags),
    ] {
        let helm = portcullis_charts::Helm::new();
        let rendered = helm.template(chart, [name, namespace], &values).unwrap();
        let place = ["operator", "--image=op:1", "--release", name, "--namespace", namespace];
        let words = [&place[..], flags].concat();
        let generated = serde_saphyr::from_multiple(&portcullis_charts::generate(operator, &words)).unwrap();
        portcullis_charts::assert_same(&rendered, &generated, name);
    }
}

#[test]
fn an_invalid_name_is_refused_with_the_flag_and_the_fix() {
    let folder = TempDir::new().unwrap();
    let table: [(&[&str], &[&str]); 13] = [
        (&["Beer"], &["NAME \"Beer\"", "beer-operator"]),
        (&["beer--operator"], &["NAME"]),
        (&["beer-"], &["NAME \"beer-\""]),
        (&["7up"], &["NAME \"7up\"", "a letter"]),
        (&["../beer"], &["NAME"]),
        (&[""], &["NAME"]),
        (&["beer", "--kind", "beer"], &["--kind \"beer\"", "as in Beer"]),
        (&["beer", "--kind", "Be-er"], &["--kind"]),
        (&["status-operator"], &["--kind \"Status\"", "give another"]),
        (&["beer", "--group", "example"], &["--group \"example\"", "a domain"]),
        (&["beer", "--group", "Beer.example.com"], &["--group"]),
        (&["beer", "--sdk", "/nowhere"], &["--sdk /nowhere", "of a checkout"]),
        (&["beer", "--out", "/nowhere/beer"], &["cannot write /nowhere/beer"]),
    ];
    for (arguments, parts) in table {
        let refused = generate(folder.path(), arguments);
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_there_already_is_not_touched() {
    let folder = TempDir::new().unwrap();
    let mine = folder.path().join("mine");
    fs::create_dir(&mine).unwrap();
    for out in ["mine", "."] {
        let refused = generate(folder.path(), &["beer", "--out", out]);
        assert!(text(&refused.stderr).contains(&format!("{out} is there already: give another --out")), "{out}");
    }
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
}
