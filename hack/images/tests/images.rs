//! `pack.sh`, with a program of a few lines: what it writes, and what it refuses.

#![allow(clippy::unwrap_used, reason = "what cannot be packed or read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_images::check;
use tempfile::TempDir;

const NAME: &str = "localhost/portcullis/tiny:1.0";
const LABELS: [&str; 4] = ["title=tiny", "version=1.0", "revision=0123", "licenses=Apache-2.0"];

/// A folder with a static program `tiny`.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("tiny.c"), folder.path().join("tiny"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").arg(&binary).arg(&source).status().unwrap();
    assert!(built.success(), "needs a C compiler and a static C library: on Debian 'apt-get install gcc libc6-dev'");
    (folder, binary)
}

/// Packs `binary` with all labels, and with `files` beside it.
fn pack(binary: &Path, name: &str, out: &Path, files: &[String]) -> Result<(), String> {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/pack.sh"));
    for label in LABELS {
        command.args(["--label", &format!("org.opencontainers.image.{label}")]);
    }
    for file in files {
        command.args(["--file", file]);
    }
    let ran = command.arg(name).arg(out).arg(binary).args(["serve", "a \"quoted\" word"]).output().unwrap();
    if ran.status.success() { Ok(()) } else { Err(String::from_utf8(ran.stderr).unwrap()) }
}

#[test]
fn a_static_binary_becomes_an_image_of_that_file_alone() {
    let (folder, binary) = folder();
    let out = folder.path().join("tiny.tar");
    pack(&binary, NAME, &out, &[]).unwrap();
    let image = check(&out, 2, &[]).unwrap();
    assert_eq!((image.name.as_str(), image.files.len()), (NAME, 1));
    assert!(image.files.contains("/tiny"), "{image}");
}

#[test]
fn a_file_that_is_named_lies_beside_the_binary() {
    let (folder, binary) = folder();
    let (out, source) = (folder.path().join("tiny.tar"), folder.path().join("tiny.c"));
    let file = format!("/etc/ssl/certs/ca-certificates.crt={}", source.display());
    pack(&binary, NAME, &out, &[file]).unwrap();
    check(&out, 2, &["/etc/ssl/certs/ca-certificates.crt".to_owned()]).unwrap();
    let unnamed = check(&out, 2, &[]).unwrap_err().to_string();
    assert!(unnamed.contains("its files are"), "{unnamed}");
}

#[test]
fn an_image_is_reproducible_by_anybody_anywhere() {
    let (folder, binary) = folder();
    let (first, second) = (folder.path().join("first.tar"), folder.path().join("elsewhere/second.tar"));
    pack(&binary, NAME, &first, &[]).unwrap();
    // Another time of the file, and another umask.
    let copy = folder.path().join("copy/tiny");
    fs::create_dir(copy.parent().unwrap()).unwrap();
    fs::copy(&binary, &copy).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh", concat!(env!("CARGO_MANIFEST_DIR"), "/pack.sh")]);
    for label in LABELS {
        shell.args(["--label", &format!("org.opencontainers.image.{label}")]);
    }
    shell.args([NAME]).arg(&second).arg(&copy).args(["serve", "a \"quoted\" word"]);
    assert!(shell.current_dir(folder.path()).status().unwrap().success());
    assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
}

#[test]
fn what_cannot_run_in_an_empty_image_is_refused() {
    let (folder, binary) = folder();
    let out = folder.path().join("refused.tar");
    let dynamic = std::env::current_exe().unwrap();
    let refused = pack(&dynamic, NAME, &out, &[]).unwrap_err();
    assert!(refused.contains("is linked dynamically") && refused.contains("CGO_ENABLED=0"), "{refused}");
    let refused = pack(&folder.path().join("tiny.c"), NAME, &out, &[]).unwrap_err();
    assert!(refused.contains("is no ELF binary"), "{refused}");
    // containerd keeps an image under its whole name; no pod would find one named "tiny".
    let refused = pack(&binary, "tiny", &out, &[]).unwrap_err();
    assert!(refused.contains("is not a whole name"), "{refused}");
    assert!(!out.exists());
}

#[test]
fn a_changed_blob_a_missing_label_and_a_large_image_are_found() {
    let (folder, binary) = folder();
    let out = folder.path().join("tiny.tar");
    pack(&binary, NAME, &out, &[]).unwrap();
    let large = check(&out, 0, &[]).unwrap_err().to_string();
    assert!(large.contains("0 MB are allowed"), "{large}");

    let mut bytes = fs::read(&out).unwrap();
    let user = bytes.windows(5).position(|window| window == b"65532").unwrap();
    bytes[user] = b'0';
    fs::write(&out, bytes).unwrap();
    let changed = check(&out, 2, &[]).unwrap_err().to_string();
    assert!(changed.contains("the blob"), "{changed}");

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/pack.sh");
    assert!(Command::new(script).arg(NAME).arg(&out).arg(&binary).status().unwrap().success());
    let unlabelled = check(&out, 2, &[]).unwrap_err().to_string();
    assert!(unlabelled.contains("it has no label"), "{unlabelled}");
}
