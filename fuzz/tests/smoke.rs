//! The fuzz targets over the committed seeds and some thousand mutations of them: the same ones in every run.

#![allow(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use portcullis_fuzz::{Mutator, certificates, conversion, lease, review};

/// Bodies that are tried for each target.
const RUNS: usize = 4_000;

fn seed_files(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay(target: &str, run: fn(&[u8])) {
    let seeds: Vec<Vec<u8>> = seed_files(target).iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let mut mutator = Mutator::starting_at(20_261_121);
    let mutated = (0..RUNS).map(|_| mutator.body(&seeds));
    for body in seeds.iter().cloned().chain(mutated) {
        let survived = catch_unwind(AssertUnwindSafe(|| run(&body))).is_ok();
        // The body is what reproduces it: put it into the seeds, where it stays.
        assert!(survived, "{target} broke its promise for this body:\n{}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn no_body_makes_the_review_codec_panic_or_answer_wrongly() {
    replay("review", review);
}

#[test]
fn no_object_makes_the_conversion_engine_panic_or_lose_anything() {
    replay("conversion", conversion);
}

#[test]
fn no_secret_makes_the_loader_panic_or_trust_wrongly() {
    replay("certificates", certificates);
}

#[test]
fn no_lease_makes_two_act_or_nobody() {
    replay("lease", lease);
}

#[test]
fn seeds_are_few_and_small() {
    let files: Vec<PathBuf> =
        ["review", "conversion", "certificates", "lease"].iter().flat_map(|target| seed_files(target)).collect();
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(
        files.len() <= 100 && bytes <= 200_000,
        "{} seeds of {bytes} bytes; keep those that reach something",
        files.len()
    );
}
