//! CPU time and memory of a process, from /proc.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

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

/// The CPUs that this process may use, as `taskset` writes them.
pub fn cpus() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.context("no Cpus_allowed_list in /proc/self/status")?.trim().to_owned())
}

/// Moves these processes, with their children, to these CPUs.
pub fn move_to(cpus: &str, pids: &[u32]) -> Result<()> {
    let mut pids = pids.to_vec();
    let mut at = 0;
    while let Some(&pid) = pids.get(at) {
        at += 1;
        let moved = Command::new("taskset").args(["-acp", cpus, &pid.to_string()]).stdout(Stdio::null()).status();
        let moved = moved.context("taskset is not installed; it comes with util-linux")?;
        ensure!(moved.success(), "taskset cannot move process {pid}");
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread that has ended has no children.
            let children = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    Ok(())
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

/// CPU time of each thread of a process, to the nanosecond. A thread that ends takes its time with it.
#[derive(Clone, Debug)]
pub struct ThreadTimes(BTreeMap<u32, u64>);

impl ThreadTimes {
    /// The times until now.
    pub fn of(pid: u32) -> Result<Self> {
        let mut times = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            let id = thread.file_name().to_str().and_then(|name| name.parse().ok()).context("a thread without id")?;
            // It may have ended since it was listed.
            let Ok(times_of) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let on_cpu = times_of.split_whitespace().next().context("schedstat is empty")?;
            times.insert(id, on_cpu.parse()?);
        }
        Ok(Self(times))
    }

    /// The time that was used since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Duration {
        let used = self.0.iter().map(|(id, now)| now.saturating_sub(earlier.0.get(id).copied().unwrap_or_default()));
        Duration::from_nanos(used.sum())
    }
}

/// CPU time that the whole machine has spent on anything but idling.
pub fn machine_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user already.
    let busy = ticks.iter().take(8).enumerate().filter(|(field, _)| !matches!(field, 3 | 4)).map(|(_, ticks)| ticks);
    Ok(Duration::from_millis(busy.sum::<u64>() * 1000 / TICKS_PER_SECOND))
}
