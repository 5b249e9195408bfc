//! Runs the tests of the workspace: all of them beside each other, or some over and over under bad conditions.

#![allow(clippy::print_stdout, reason = "a command line tool")]

mod all;
mod binaries;
mod chance;
mod process;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    command: Task,
    /// Tests that one binary runs at once; by default two for each CPU, since most wait for processes
    #[arg(long, global = true, env = "TEST_THREADS")]
    threads: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test binary, several at a time, and the code in the documentation
    Run {
        /// Test binaries that run at once; by default two for each CPU
        #[arg(long, env = "TEST_JOBS")]
        jobs: Option<usize>,
    },
    /// Run test binaries over and over: pinned to one CPU, and beside two busy loops
    Chance {
        /// Names of test binaries; all integration tests without them
        names: Vec<String>,
        /// Runs under each of the two conditions
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let twice = thread::available_parallelism()?.get() * 2;
    let threads = cli.threads.unwrap_or(twice);
    let passed = match cli.command {
        Task::Run { jobs } => all::run(jobs.unwrap_or(twice), threads)?,
        Task::Chance { names, runs } => chance::run(&names, runs, threads)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Creates a folder for logs and figures in the target folder that this program was built into.
fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("the program lies in no target folder")?;
    let folder = target.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    Ok(folder)
}
