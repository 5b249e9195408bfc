//! Files of a proxy's container, as paths: those that it shows to no identity provider, and those that its gate rests on.

/// The program of this platform's image of the proxy.
pub const PROGRAM: &str = "/mcp-runner";

/// Where a pod has the CA of the cluster, and the token of its ServiceAccount.
pub const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Directories of the kernel, and those that the operator mounts into proxies.
const HIDDEN: [&str; 6] = ["/proc", "/sys", "/dev", "/etc/runconfig", "/etc/toolhive", "/config/certs"];

/// The gate rests on these files of a proxy's container: its program, the libraries that a C library loads, the files that tell
/// it names and addresses, the root certificates that TLS libraries look for, the kernel's files, and the operator's mounts.
const RELIED_ON: [&str; 29] = [
    PROGRAM,
    "/bin",
    "/dev",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/security/certificates",
    "/etc/ssl",
    "/etc/runconfig",
    "/etc/toolhive",
    "/config/certs",
    "/opt/etc/ssl",
];

/// Whether a mount at the path would hide or replace a file that the gate rests on.
pub fn hides_proxy(path: &str) -> bool {
    RELIED_ON.iter().any(|own| is_below(path, own) || is_below(own, path))
}

/// The directory, of the kernel's and the operator's, that has the path at or below it.
pub fn hidden_directory(path: &str) -> Option<&'static str> {
    HIDDEN.into_iter().find(|directory| is_below(path, directory))
}

/// Whether the path is one of the files of a pod's ServiceAccount.
pub fn is_of_account(path: &str) -> bool {
    is_below(path, ACCOUNT)
}

/// Whether a mount at the path would hide or replace files of a pod's ServiceAccount.
pub fn hides_account(path: &str) -> bool {
    is_below(path, ACCOUNT) || is_below(ACCOUNT, path)
}

/// Whether the path is absolute and says where it leads without `.`, `..`, `//` and a slash at its end.
pub fn is_plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|path| path.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// Whether the path is the directory or below it, however both are spelled. It follows no links.
pub fn is_below(path: &str, directory: &str) -> bool {
    components(path).starts_with(&components(directory))
}

/// The directories of a path: in images `/var/run` is `/run`.
fn components(path: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = all.pop(),
            "run" if all == ["var"] => all = vec!["run"],
            part => all.push(part),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mount_hides_a_file_that_the_gate_rests_on() {
        for (path, hides) in [
            ("/", true),
            ("/etc", true),
            ("/etc/ssl/certs/ca-certificates.crt", true),
            ("/etc/../mcp-runner", true),
            // A program that is linked statically still loads these, to find names.
            ("/etc/nsswitch.conf", true),
            ("/lib/x86_64-linux-gnu", true),
            ("/usr/lib", true),
            ("/etc/hosts", true),
            ("/etc/resolv.conf", true),
            ("/vault/secrets", false),
            ("/var/run/secrets/eks.amazonaws.com/serviceaccount", false),
            ("/etc/podinfo", false),
            ("/library", false),
        ] {
            assert_eq!(hides_proxy(path), hides, "{path}");
        }
    }
}
