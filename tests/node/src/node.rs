//! The node that hack/node brings up.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// Where hack/node/up.sh writes it.
pub const KUBECONFIG: &str = "/var/lib/portcullis-node/admin.kubeconfig";
/// The Go SDK's MCP server `everything`, with the arguments of its binary.
pub const EVERYTHING_IMAGE: &str = "localhost/portcullis/everything:test";
/// The program of tests/node/pod: an MCP client and server, and webhooks.
pub const POD_IMAGE: &str = "localhost/portcullis/pod:test";
/// The deadline of any wait on a busy machine: for pods, a rollout, a status.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// A running node, for its administrator.
#[derive(Clone)]
pub struct Node {
    /// The administrator's client.
    pub client: Client,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl Node {
    /// The node that runs on this machine.
    ///
    /// # Panics
    /// When there is none.
    pub async fn running() -> Self {
        let file = Path::new(KUBECONFIG);
        let kubeconfig = Kubeconfig::read_from(file)
            .unwrap_or_else(|error| panic!("no node: {error}. 'make e2e' brings one up and runs these tests"));
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"));
        let client = Client::try_from(config).unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"));
        Self { client }
    }

    /// Ends the programs of a pod's containers by SIGKILL, as the kernel does when memory is short.
    ///
    /// # Panics
    /// When there are none.
    pub fn kill(&self, pod: &Pod) {
        let processes = programs(pod);
        let pids: Vec<_> = processes.iter().filter_map(|process| process.file_name()).collect();
        let killed = Command::new("kill").arg("-KILL").args(&pids).status();
        assert!(
            !pids.is_empty() && killed.is_ok_and(|status| status.success()),
            "no processes of {:?} to kill: {pids:?}",
            pod.metadata.name
        );
    }

    /// The most memory that a program of the pod's containers has had at once, in KiB; none when none runs.
    ///
    /// # Panics
    /// When the pod was not read from the cluster.
    pub fn peak_memory(&self, pod: &Pod) -> Option<u64> {
        // proc_pid_status(5)
        let peak = |process: &PathBuf| {
            let status = std::fs::read_to_string(process.join("status")).ok()?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            peak.split_whitespace().next()?.parse().ok()
        };
        programs(pod).iter().filter_map(peak).max()
    }
}

/// The folders in /proc of the programs of a pod's containers.
fn programs(pod: &Pod) -> Vec<PathBuf> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_else(|| panic!("a pod that was not read from the cluster"));
    let of_pod = |process: &PathBuf| {
        let [groups, program] =
            ["cgroup", "comm"].map(|file| std::fs::read_to_string(process.join(file)).unwrap_or_default());
        groups.contains(uid) && program.trim() != "pause"
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.filter(of_pod).collect()
}

/// kubectl with the node's cluster.
///
/// # Panics
/// With what it says when it fails.
pub fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments).unwrap_or_else(|error| panic!("kubectl {}: {error}", arguments.join(" ")))
}

/// [`kubectl`] in a namespace. Meanwhile other tasks of this thread run elsewhere, which needs a runtime of several threads.
///
/// # Panics
/// With what it says when it fails.
pub fn kubectl_in(namespace: &str, arguments: &[&str]) -> String {
    tokio::task::block_in_place(|| kubectl(&[&["--namespace", namespace], arguments].concat()))
}

/// kubectl with the node's cluster, as a program.
pub const KUBECTL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/node/kubectl.sh");

/// kubectl with the node's cluster: what it prints, or what it says when it fails.
///
/// # Errors
/// With what it says.
///
/// # Panics
/// When it cannot be started.
pub fn try_kubectl(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(KUBECTL).args(arguments).output().unwrap_or_else(|error| panic!("{KUBECTL}: {error}"));
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() { Ok(stdout) } else { Err(stderr) }
}

/// A container of a pod under Pod Security's level `restricted`, from an image that is on the node.
pub(crate) fn container(name: &str, image: &str, arguments: &[&str]) -> Value {
    json!({
        "name": name, "image": image, "imagePullPolicy": "Never", "args": arguments,
        "securityContext": {
            "runAsNonRoot": true, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
        },
    })
}
