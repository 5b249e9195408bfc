//! Every test binary, several at a time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::ensure;

use crate::binaries::{self, Binary};
use crate::process::{self, Run};
use crate::report::Report;

/// The binaries that take longest, longest first: begun last, they would run alone at the end.
const LONGEST: &[&str] =
    &["sdk_operator", "e2e", "data_plane", "mcp_operator", "charts", "webhook", "project", "dynamo"];
/// A test that takes longer is listed: it costs time on every change.
const SLOW: Duration = Duration::from_secs(10);

/// Runs all tests and prints each binary's results as it ends. Returns whether all passed.
pub(crate) fn run(jobs: usize, threads: usize) -> anyhow::Result<bool> {
    let binaries = longest_first(binaries::compile()?, LONGEST)?;
    let folder = crate::folder("suite")?;
    let begun = Instant::now();
    let job = |binary: Binary| {
        let command = process::command(&binary, threads, &[]);
        // Other than a target's name, that of its executable has no second.
        let log = folder.join(binary.executable.file_name().unwrap_or_default()).with_extension("log");
        (binary.name, command, log)
    };
    let doc_tests = ("doc tests".to_owned(), process::doc_tests(), folder.join("doc-tests.log"));
    let queue: VecDeque<(String, Command, PathBuf)> = binaries.into_iter().map(job).chain([doc_tests]).collect();
    let total = queue.len();
    println!("{total} test binaries, {jobs} at a time; their output is in {}", folder.display());
    let queue = Mutex::new(queue);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((name, command, log)) = next() {
                    if sender.send(process::run(&name, command, &log)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        summary(&results, total, begun)
    })
}

/// Sorts the binaries in the order of a list; those that it does not name follow as they came.
fn longest_first(binaries: Vec<Binary>, list: &[&str]) -> anyhow::Result<Vec<Binary>> {
    for name in list {
        let found = binaries.iter().any(|binary| binary.name == *name);
        ensure!(found, "no test binary has the name {name}: correct LONGEST in tests/suite/src/all.rs");
    }
    let mut sorted = binaries;
    sorted.sort_by_key(|binary| list.iter().position(|name| *name == binary.name).unwrap_or(list.len()));
    Ok(sorted)
}

/// Prints results as they come, then the slowest binaries and tests, and the counts in the last line.
fn summary(results: &Receiver<anyhow::Result<Run>>, total: usize, begun: Instant) -> anyhow::Result<bool> {
    let mut runs = Vec::new();
    for result in results {
        let run = result?;
        println!("[{:>3}/{total}] {}", runs.len() + 1, run.line());
        if run.report.failed > 0 {
            println!("{}", String::from_utf8_lossy(&fs::read(&run.log)?));
        }
        runs.push(run);
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.took));
    println!("\nThe ten slowest test binaries:");
    for run in runs.iter().take(10) {
        println!("  {:>6.1} s  {}", run.took.as_secs_f64(), run.name);
    }
    println!("\nTests over {} s:", SLOW.as_secs());
    for run in &runs {
        for test in run.report.tests.iter().filter(|test| test.took > SLOW) {
            println!("  {:>6.1} s  {} {}", test.took.as_secs_f64(), run.name, test.name);
        }
    }
    let mut sum = Report::default();
    println!();
    for run in runs {
        for name in run.report.failures() {
            println!("failed: {} {name}; see {}", run.name, run.log.display());
        }
        sum.add(run.report);
    }
    println!("{:.0} s with {total} test binaries", begun.elapsed().as_secs_f64());
    println!("{}", sum.counts());
    Ok(sum.failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(name: &str) -> Binary {
        Binary { name: name.to_owned(), folder: "/".into(), executable: "/".into() }
    }

    #[test]
    fn listed_binaries_begin_first() {
        let binaries = || ["a", "b", "c", "d"].map(binary).to_vec();
        let sorted = longest_first(binaries(), &["d", "b"]).unwrap();
        assert_eq!(sorted.iter().map(|binary| binary.name.as_str()).collect::<Vec<_>>(), ["d", "b", "a", "c"]);
        let error = longest_first(binaries(), &["gone"]).unwrap_err();
        assert!(error.to_string().contains("no test binary has the name gone"), "{error}");
    }
}
