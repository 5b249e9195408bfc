//! Nothing of a control plane survives the process that started it, whichever way that process ends.
//!
//! This file has a `main` of its own: called with a way to end, it is the process that holds a control plane; otherwise
//! it starts itself once for each way and looks at what is left.

#![allow(clippy::unwrap_used, clippy::panic, clippy::exit, clippy::print_stdout, reason = "a test with its own main")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portcullis_testing::{ControlPlane, wait_until};
use tokio::runtime::Runtime;

/// The ways to end; the last one never gets a control plane.
const WAYS: [&str; 6] = ["SIGKILL", "Ctrl-C", "panic", "exit", "return", "stop"];
const MISSING: &str = "missing";
/// Other children of the killed holder, which outlive it: none of them may keep the watcher's pipe open.
const CHILDREN: usize = 20;

/// The output of a holder: the processes of its control plane, the directory, and its other children.
struct Held {
    process: Child,
    servers: Vec<u32>,
    directory: PathBuf,
    children: Vec<u32>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::args().nth(1).as_deref() {
        Some(way) if WAYS.contains(&way) || way == MISSING => return hold(&runtime, way),
        Some("--list") => return,
        _ => {}
    }
    // A few at a time: each is a control plane.
    for ways in WAYS.chunks(3) {
        at_once(ways, |way| nothing_is_left_after(&runtime, way));
        for way in ways {
            println!("test nothing_is_left_after {way} ... ok");
        }
    }
    at_once(&["", "logs/etcd.log", "logs/kube-apiserver.log", "admin.kubeconfig"], |reached| {
        nothing_is_left_when_killed_while_starting(&runtime, reached);
    });
    println!("test nothing_is_left_when_killed_while_starting ... ok");
    missing_servers_are_named_with_their_install_command();
    println!("test missing_servers_are_named_with_their_install_command ... ok");
}

/// Does the same with each of these, on a thread of its own.
fn at_once(these: &[&str], with: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for this in these {
            scope.spawn(|| with(this));
        }
    });
}

fn nothing_is_left_after(runtime: &Runtime, way: &str) {
    let mut held = start(way);
    assert!(held.servers.len() >= 3 && held.servers.iter().all(|pid| alive(*pid)), "{way}: {:?}", held.servers);
    assert!(held.directory.join("admin.kubeconfig").is_file(), "{way}");
    let pid = held.process.id();
    match way {
        "SIGKILL" => signal("KILL", &pid.to_string()),
        // A terminal sends it to every process of the group.
        "Ctrl-C" => signal("INT", &format!("-{pid}")),
        _ => held.process.stdin.take().unwrap().write_all(b"end\n").unwrap(),
    }
    held.process.wait().unwrap();
    runtime.block_on(wait_until(&format!("nothing to be left after {way}"), Duration::from_mins(1), async || {
        (!held.directory.exists() && !held.servers.iter().any(|pid| alive(*pid))).then_some(())
    }));
    // They were there all the while.
    let expected = if way == "SIGKILL" { CHILDREN } else { 0 };
    assert_eq!(held.children.iter().filter(|pid| alive(**pid)).count(), expected, "{way}");
    held.children.iter().for_each(|pid| signal("KILL", &pid.to_string()));
}

fn nothing_is_left_when_killed_while_starting(runtime: &Runtime, reached: &str) {
    let temporary = tempfile::Builder::new().prefix("a b").tempdir().unwrap();
    let entries = || std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path());
    // A relative path, too, is no place that the servers would miss.
    let mut process = holder("SIGKILL").current_dir(temporary.path()).env("TMPDIR", ".").spawn().unwrap();
    runtime.block_on(wait_until(&format!("the start to reach '{reached}'"), Duration::from_mins(1), async || {
        entries().any(|directory| directory.join(reached).exists()).then_some(())
    }));
    signal("KILL", &process.id().to_string());
    process.wait().unwrap();
    // The directory's unique path is an argument of each server and of the watcher.
    runtime.block_on(wait_until(&format!("nothing to be left of '{reached}'"), Duration::from_mins(1), async || {
        (entries().count() == 0 && mentioned_by(temporary.path()) == 0).then_some(())
    }));
}

fn missing_servers_are_named_with_their_install_command() {
    let empty = tempfile::tempdir().unwrap();
    let mut holder = holder(MISSING);
    for variable in ["XDG_CACHE_HOME", "XDG_DATA_HOME"] {
        holder.env(variable, empty.path());
    }
    let output = holder.env_remove("KUBEBUILDER_ASSETS").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    let mut rest = &*said;
    for part in
        ["etcd, kube-apiserver not found in", "run `setup-envtest use`", "`make control-plane`", "KUBEBUILDER_ASSETS"]
    {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part} is not said, or not in this order: {said}")).1;
    }
}

/// The holder: starts a control plane, prints what it holds, and ends in the way asked.
fn hold(runtime: &Runtime, way: &str) {
    let killed = way == "SIGKILL";
    let builder = ControlPlane::builder();
    let builder = if killed { builder.controller_manager() } else { builder };
    let control_plane = runtime.block_on(builder.start()).unwrap_or_else(|error| panic!("{error}"));
    let sleeper = |_| Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap().id();
    let children: Vec<u32> = (0..if killed { CHILDREN } else { 0 }).map(sleeper).collect();
    let list = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    println!("{}\t{}\t{}", list(&control_plane.process_ids()), control_plane.directory().display(), list(&children));

    // Until the other side has looked; its end, should it fail, ends this process too.
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    match way {
        "panic" => panic!("a test fails"),
        "exit" => std::process::exit(3),
        "stop" => {
            let directory = control_plane.directory().to_owned();
            runtime.block_on(control_plane.stop());
            assert!(!directory.exists(), "stop returns when everything is gone");
        }
        _ => {}
    }
}

fn holder(way: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(way).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(way: &str) -> Held {
    let mut process = holder(way).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let parts: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
    let [servers, directory, children] = parts.as_slice() else {
        let mut said = String::new();
        process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("{way}: the holder did not start: {said}");
    };
    let pids = |text: &str| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    Held { servers: pids(servers), directory: PathBuf::from(directory), children: pids(children), process }
}

fn signal(name: &str, target: &str) {
    assert!(
        Command::new("sh").args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", name, target]).status().unwrap().success()
    );
}

/// Counts the processes that have this path among their arguments.
fn mentioned_by(path: &Path) -> usize {
    let path = path.to_str().unwrap();
    let listed =
        Command::new("sh").args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null || ps -A -o args="]).output().unwrap();
    // `sh` and `cat` do not have it: it is not on their command line.
    String::from_utf8_lossy(&listed.stdout).matches(path).count()
}

/// Whether the process runs; a zombie does not.
fn alive(pid: u32) -> bool {
    if Path::new("/proc/self").exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        return stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
    }
    Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status().unwrap().success()
}
