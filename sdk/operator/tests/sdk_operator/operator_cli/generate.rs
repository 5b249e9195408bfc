//! `generate`: the same bytes every time, and a check that names what differs.

use std::path::Path;

use serde_json::{Value, json};

use super::cluster::generate;
use super::process::{fails, output};

const ALL: [&str; 3] = ["crds", "webhooks", "rbac"];

async fn write(what: &str, folder: &Path) {
    let output = output(&["generate", what, "--out", folder.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "writing files says nothing");
}

/// Names and contents of the files.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

// K5
#[tokio::test]
async fn each_run_writes_the_same_bytes_and_the_check_agrees() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for what in ALL {
        for folder in &folders {
            // A folder that is not there yet is made; all three may share one.
            write(what, &folder.path().join("deploy")).await;
        }
    }
    let written = folders.each_ref().map(|folder| files(&folder.path().join("deploy")));
    assert_eq!(written[0], written[1]);
    let names: Vec<&str> = written[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["entities.demo.example.yaml", "rbac.yaml", "webhooks.yaml"]);
    for what in ALL {
        let folder = folders[0].path().join("deploy");
        write(what, &folder).await;
        let check = output(&["generate", what, "--check", "--out", folder.to_str().unwrap()]).await;
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let printed = output(&["generate", what]).await.stdout;
        assert!(written[0].iter().any(|(_, bytes)| *bytes == printed), "what is printed is what is written");
    }
    assert_eq!(files(&folders[0].path().join("deploy")), written[0]);
}

#[tokio::test]
async fn check_names_each_differing_file_and_writes_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("it's here");
    write("crds", &folder).await;
    let (crd, old) = (folder.join("entities.demo.example.yaml"), folder.join("olds.demo.example.yaml"));
    let right = std::fs::read(&crd).unwrap();
    std::fs::copy(&crd, &old).unwrap();
    std::fs::write(folder.join("mine.yaml"), "kind: Mine\n").unwrap();
    let check = ["generate", "crds", "--forbid", "nobody", "--check", "--out", folder.to_str().unwrap()];
    let command =
        format!("controller generate crds --forbid nobody --out '{}'", folder.to_str().unwrap().replace('\'', r"'\''"));

    let changed = [&right[..], b"changed"].concat();
    std::fs::write(&crd, changed).unwrap();
    let before = files(&folder);
    let said = fails(&check, 1).await;
    assert_eq!(
        said,
        format!(
            "error: {} is not what is generated: entities.demo.example.yaml (changed), \
             olds.demo.example.yaml (not generated any more); write it again with: {command}\n",
            folder.display()
        )
    );
    assert_eq!(files(&folder), before);

    std::fs::remove_file(&crd).unwrap();
    assert!(fails(&check, 1).await.contains("entities.demo.example.yaml (missing)"));

    // The command repairs it, and leaves alone what it did not write.
    write("crds", &folder).await;
    assert_eq!(std::fs::read(&crd).unwrap(), right);
    assert_eq!(
        files(&folder).into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["entities.demo.example.yaml", "mine.yaml"]
    );
    assert!(output(&check).await.status.success());

    std::fs::remove_dir_all(&folder).unwrap();
    assert!(fails(&check, 1).await.contains("entities.demo.example.yaml (missing)"));
}

// A database's dump, or a disk image, in the place of a manifest.
#[tokio::test]
async fn no_more_is_read_of_a_file_than_could_be_generated() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    for name in ["rbac.yaml", "theirs.yaml"] {
        // It has no bytes on the disk, and more than there is memory.
        std::fs::File::create(home.path().join(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let said = fails(&["generate", "rbac", "--check", "--out", out], 1).await;
    assert!(said.starts_with(&format!("error: {out} is not what is generated: rbac.yaml (changed); ")), "{said}");
    let said = fails(&["generate", "rbac", "--out", out], 1).await;
    assert!(said.contains("holds what 'generate' of this operator did not write: rbac.yaml;"), "{said}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for more in [&[][..], &["--check"]] {
        let said = fails(&[&["generate", "rbac", "--out", path], more].concat(), 1).await;
        assert_eq!(said, format!("error: --out {path} is a file: give a folder\n"));
    }
    let below = format!("{path}/below");
    let said = fails(&["generate", "rbac", "--out", &below], 1).await;
    assert_eq!(said, format!("error: cannot read {below}: Not a directory (os error 20)\n"));
}

#[tokio::test]
async fn a_pipe_instead_of_a_manifest_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let (out, pipe) = (home.path().to_str().unwrap(), home.path().join("rbac.yaml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for more in [&[][..], &["--check"]] {
        let said = fails(&[&["generate", "rbac", "--out", out], more].concat(), 1).await;
        assert_eq!(said, format!("error: {} is no file: move it away, or give another --out\n", pipe.display()));
    }
}

// A `kustomization.yaml` or an `rbac.yaml` is easily a user's own.
#[tokio::test]
async fn a_foreign_file_stops_generate_before_it_writes_any() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    let theirs = "# Generated by 'other-operator generate rbac'. Do not edit.\n";
    std::fs::write(home.path().join("rbac.yaml"), theirs).unwrap();
    std::fs::write(home.path().join("kustomization.yaml"), "resources: []\n").unwrap();
    let command =
        ["generate", "operator", "--image", "op:1", "--format", "kustomize", "--forbid", "nobody", "--out", out];
    let before = files(home.path());
    let said = fails(&command, 1).await;
    let problem = "holds what 'generate' of this operator did not write: rbac.yaml, kustomization.yaml; move it away";
    assert!(said.starts_with(&format!("error: {out} {problem}, or give another --out")), "{said}");
    assert_eq!(files(home.path()), before);

    // Files of its other commands are its own, and so is one that it was interrupted in writing.
    std::fs::remove_file(home.path().join("kustomization.yaml")).unwrap();
    std::fs::write(home.path().join("operator.yaml"), "").unwrap();
    std::fs::remove_file(home.path().join("rbac.yaml")).unwrap();
    write("rbac", home.path()).await;
    assert!(output(&command).await.status.success());
    assert!(output(&[&command[..], &["--check"]].concat()).await.status.success());
}

// A pipeline writes the whole, and a job checks the roles alone; or the other way round.
#[tokio::test]
async fn every_command_writes_the_same_file_and_removes_no_others() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    let issued = ["--certificates", "cert-manager", "--out", out];
    let all = [&["generate", "operator", "--image", "op:1", "--format", "kustomize"], &issued[..]].concat();
    assert!(output(&all).await.status.success());
    let before = files(home.path());
    for part in ["crds", "rbac", "webhooks", "certificates"] {
        for mode in [&["--check"][..], &[]] {
            let said = output(&[&["generate", part], &issued[..], mode].concat()).await;
            assert!(said.status.success(), "{part}: {}", String::from_utf8_lossy(&said.stderr));
        }
        let said = fails(&[&["generate", part, "--format", "kustomize"], &issued[..]].concat(), 1).await;
        let problem = format!("error: {out}/kustomization.yaml names what another 'generate' wrote: omit --format ");
        assert!(said.starts_with(&problem), "{said}");
    }
    assert_eq!(files(home.path()), before);
    // Without cert-manager there is nothing for it to issue, and then the example of who brings his own is his.
    let external = ["--certificates", "external", "--out", out];
    let all = [&["generate", "operator", "--image", "op:1"], &external[..]].concat();
    assert!(output(&all).await.status.success());
    assert!(!home.path().join("certificates.yaml").exists() && !home.path().join("kustomization.yaml").exists());
    assert!(output(&[&["generate", "certificates"], &external[..]].concat()).await.status.success());
    assert!(output(&[&all[..], &["--check"]].concat()).await.status.success());
}

#[tokio::test]
async fn other_line_endings_are_distinguished_from_a_change() {
    let home = tempfile::tempdir().unwrap();
    write("rbac", home.path()).await;
    let file = home.path().join("rbac.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace('\n', "\r\n")).unwrap();
    let said = fails(&["generate", "rbac", "--out", home.path().to_str().unwrap(), "--check"], 1).await;
    assert!(said.contains("rbac.yaml (other line endings); write it again with"), "{said}");
}

/// As Git checks files out on Windows: one that is not generated any more is one there too, and is still applied.
#[tokio::test]
async fn a_stale_file_is_removed_whatever_its_line_endings() {
    let home = tempfile::tempdir().unwrap();
    write("rbac", home.path()).await;
    let (file, old) = (home.path().join("rbac.yaml"), home.path().join("old.yaml"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&old, text.replace('\n', "\r\n")).unwrap();
    let said = fails(&["generate", "rbac", "--out", home.path().to_str().unwrap(), "--check"], 1).await;
    assert!(said.contains("old.yaml (not generated any more); write it again with"), "{said}");
    write("rbac", home.path()).await;
    assert!(!old.exists());
}

#[tokio::test]
async fn other_files_in_the_folder_do_not_matter() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("folder.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", home.path().join("broken.yaml")).unwrap();
    std::fs::write(home.path().join("bytes.yaml"), [0xff, 0xfe]).unwrap();
    write("rbac", home.path()).await;
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 4);
}

// K4: what is generated follows from the handlers that are registered.
#[tokio::test]
async fn webhooks_follow_from_the_registration_and_the_place() {
    let objects =
        generate(&["webhooks", "--namespace", "here", "--service-name", "hooks", "--service-port", "8443"]).await;
    let kinds: Vec<_> =
        objects.iter().map(|object| (object["kind"].as_str().unwrap(), object["metadata"]["name"].clone())).collect();
    assert_eq!(
        kinds,
        [
            ("ValidatingWebhookConfiguration", json!("entity-operator-validating")),
            ("MutatingWebhookConfiguration", json!("entity-operator-mutating")),
        ]
    );
    let (validating, mutating) = (&objects[0]["webhooks"][0], &objects[1]["webhooks"][0]);
    assert_eq!(
        validating["clientConfig"],
        json!({ "service": { "namespace": "here", "name": "hooks", "port": 8443, "path": "/validate/username" } })
    );
    assert_eq!(validating["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    assert_eq!(mutating["rules"][0]["operations"], json!(["CREATE"]));
    assert_eq!(mutating["clientConfig"]["service"]["path"], "/mutate/defaults");
    for webhook in [validating, mutating] {
        assert_eq!(webhook["namespaceSelector"], Value::Null, "a gate for custom kinds has no gap");
    }
}

// Least privilege, to the letter.
#[tokio::test]
async fn rights_follow_from_controllers_certificates_and_leases() {
    let objects = generate(&["rbac"]).await;
    let rules_of = |kind: &str, name: &str| -> Vec<Value> {
        let role = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap();
        role["rules"].as_array().unwrap().clone()
    };
    let own = "entity-operator:entity-operator-system";
    let admission = |resource: &str, name: &str| json!({ "apiGroups": ["admissionregistration.k8s.io"], "resources": [resource], "resourceNames": [name], "verbs": ["list", "watch", "patch"] });
    let leases = |name: &str, verbs: Value| json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name], "verbs": verbs });
    assert_eq!(
        rules_of("ClusterRole", own),
        [
            json!({ "apiGroups": ["demo.example"], "resources": ["entities"], "verbs": ["get", "list", "watch"] }),
            json!({ "apiGroups": ["demo.example"], "resources": ["entities/status"], "verbs": ["patch"] }),
            json!({ "apiGroups": ["demo.example"], "resources": ["entities/finalizers"], "verbs": ["update"] }),
            json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"] }),
            json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"] }),
            admission("validatingwebhookconfigurations", "entity-operator-validating"),
            admission("mutatingwebhookconfigurations", "entity-operator-mutating"),
            // The claims of restricted operators, and the policies that hand namespaces over to them.
            leases("entity-operator-namespace-scope", json!(["list", "watch"])),
            json!({
                "apiGroups": ["admissionregistration.k8s.io"], "verbs": ["list", "watch"],
                "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            }),
        ]
    );
    let names = json!(["entity-operator-webhook-tls", "entity-operator-webhook-tls-ca"]);
    assert_eq!(
        rules_of("Role", "entity-operator"),
        [
            json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] }),
            json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "list", "watch", "patch"] }),
            json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] }),
            leases("entity-operator-leader", json!(["get", "patch"])),
        ]
    );
    assert_eq!(
        objects[0]["metadata"]["namespace"], "entity-operator-system",
        "the namespace that is meant unless said"
    );
}

// Installations that share the namespace of leader election exclude each other, and each may hold the Lease there.
#[tokio::test]
async fn another_leader_election_namespace_has_a_role_of_its_own() {
    let flags = ["--namespace", "here", "--leader-election-namespace", "shared", "--image", "a:1"];
    let objects = generate(&[&["operator"], &flags[..]].concat()).await;
    let there: Vec<_> = objects.iter().filter(|object| object["metadata"]["namespace"] == "shared").collect();
    let named = |object: &&Value| (object["kind"].clone(), object["metadata"]["name"].clone());
    let name = json!("entity-operator:here");
    assert_eq!(
        there.iter().map(named).collect::<Vec<_>>(),
        [(json!("Role"), name.clone()), (json!("RoleBinding"), name)]
    );
    assert_eq!(
        there[0]["rules"],
        json!([
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
              "resourceNames": ["entity-operator-leader"], "verbs": ["get", "patch"] },
        ])
    );
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.to_string().contains("--leader-election-namespace=shared"), "{arguments}");
}
