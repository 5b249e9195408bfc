//! CPU time and memory of a process, from /proc.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Clock ticks per second: `USER_HZ`, 100 on every Linux that Rust's tier 1 covers.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time that process `pid` has used.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; fields 14 and 15 count from the pid.
    let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat has no name")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Resident memory of process `pid` in KiB: (now, peak).
pub fn memory_kib(pid: u32) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).context("no such field in /proc/PID/status")?;
        let number = line.split_whitespace().find_map(|word| word.parse().ok());
        number.with_context(|| format!("{name} holds no number"))
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
