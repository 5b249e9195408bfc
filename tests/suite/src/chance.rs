//! Test binaries over and over under bad conditions, to find the tests that pass by chance.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use anyhow::{Context, ensure};

use crate::binaries::{self, Binary};
use crate::process::{self, Run};

/// A condition under which timing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Every process of the test shares one CPU.
    Pinned,
    /// Two busy loops take their share of the CPUs.
    Busy,
}

impl Condition {
    const ALL: [Self; 2] = [Self::Pinned, Self::Busy];

    fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Busy => "busy",
        }
    }

    fn run(self, binary: &Binary, threads: usize, log: &Path) -> anyhow::Result<Run> {
        let run = |under: &[&str]| process::run(&binary.name, process::command(binary, threads, under), log);
        match self {
            Self::Pinned => run(&["taskset", "--cpu-list", "0"]),
            Self::Busy => beside_busy_loops(|| run(&[])),
        }
    }
}

/// Runs binaries as often as is missing in their files of figures. Returns whether all runs in the files passed.
pub(crate) fn run(names: &[String], runs: usize, threads: usize) -> anyhow::Result<bool> {
    let folder = crate::folder("chance")?;
    let mut passed = true;
    for binary in chosen(binaries::compile()?, names)? {
        // Packages may have test binaries of the same name.
        let package = binary.folder.file_name().unwrap_or_default().to_string_lossy();
        let label = format!("{package}-{}", binary.name);
        let figures = folder.join(&label).with_extension("tsv");
        for condition in Condition::ALL {
            for number in done(&read(&figures)?, condition)..runs {
                let log = folder.join(format!("{label}-{}-{number}.log", condition.name()));
                let run = condition.run(&binary, threads, &log)?;
                append(&figures, &row(condition, &run))?;
                println!("{} {}/{runs}: {}", condition.name(), number + 1, run.line());
                if run.report.failed == 0 {
                    fs::remove_file(log)?;
                }
            }
        }
        let failed: Vec<String> = read(&figures)?.lines().filter(|row| !clean(row)).map(str::to_owned).collect();
        if !failed.is_empty() {
            passed = false;
            println!("{} failed {} times, see {}:", binary.name, failed.len(), folder.display());
            for row in &failed {
                println!("  {row}");
            }
        }
    }
    println!("figures: {}; delete the file to start again", folder.display());
    Ok(passed)
}

/// Takes the binaries with these names; without names, those of integration tests.
fn chosen(binaries: Vec<Binary>, names: &[String]) -> anyhow::Result<Vec<Binary>> {
    for name in names {
        let known = binaries.iter().any(|binary| binary.name == *name);
        ensure!(known, "no test binary has the name {name}; `make test` prints the names");
    }
    let wanted = |name: &String| if names.is_empty() { !name.ends_with("unit)") } else { names.contains(name) };
    Ok(binaries.into_iter().filter(|binary| wanted(&binary.name)).collect())
}

/// A line of figures: condition, passed, failed, seconds, and the names of the tests that failed.
fn row(condition: Condition, run: &Run) -> String {
    let report = &run.report;
    let seconds = run.took.as_secs_f64();
    let mut row = format!("{}\t{}\t{}\t{seconds:.1}", condition.name(), report.passed, report.failed);
    for name in report.failures() {
        // Writing into a String cannot fail.
        let _ = write!(row, "\t{name}");
    }
    row
}

/// Counts the runs under a condition.
fn done(figures: &str, condition: Condition) -> usize {
    figures.lines().filter(|row| row.split('\t').next() == Some(condition.name())).count()
}

fn clean(row: &str) -> bool {
    row.split('\t').nth(2) == Some("0")
}

fn read(figures: &Path) -> anyhow::Result<String> {
    match fs::read_to_string(figures) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("{} cannot be read", figures.display())),
    }
}

fn append(figures: &Path, row: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(figures)?;
    Ok(writeln!(file, "{row}")?)
}

fn beside_busy_loops<T>(work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let result = work();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Report;

    #[test]
    fn figures_say_how_many_runs_are_missing() {
        let output =
            "test a ... ok <1.0s>\ntest b ... FAILED <2.0s>\ntest result: FAILED. 1 passed; 1 failed; 0 ignored";
        let run = |report| Run { name: "x".to_owned(), report, took: Duration::from_secs(3), log: "/".into() };
        let failed = row(Condition::Busy, &run(Report::read(output, false)));
        assert_eq!(failed, "busy\t1\t1\t3.0\tb");
        let fine = row(Condition::Pinned, &run(Report::read("", true)));
        assert_eq!(fine, "pinned\t1\t0\t3.0");
        let figures = format!("{fine}\n{failed}\n{failed}\n");
        assert_eq!(Condition::ALL.map(|condition| done(&figures, condition)), [1, 2]);
        assert_eq!([clean(&fine), clean(&failed)], [true, false]);
    }
}
