//! The memory limit of a process: from its flag, or from its cgroup.

use std::path::Path;

/// The least limit: with less, there is no room for one review beside the process itself.
const LEAST: usize = 64 * 1024 * 1024;

/// The folder in which Linux shows cgroups (version 2), and the file that names this process's.
const CGROUPS: &str = "/sys/fs/cgroup";
const OWN_CGROUP: &str = "/proc/self/cgroup";

/// The limit of the cgroup that this process is in; `None` where there is none.
pub(super) fn of_cgroup() -> Option<usize> {
    let own = std::fs::read_to_string(OWN_CGROUP).ok()?;
    least_of(Path::new(CGROUPS), &own).filter(|limit| *limit >= LEAST)
}

/// The smallest limit of a cgroup and those that it is in. In a container only the first one is visible.
fn least_of(root: &Path, own: &str) -> Option<usize> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |cgroup: &Path| std::fs::read_to_string(root.join(cgroup).join("memory.max")).ok()?.trim().parse().ok();
    Path::new(path).ancestors().filter_map(limit).min()
}

/// Bytes as Kubernetes writes them for memory: `512Mi`, `1Gi`, `500M`, `536870912`.
pub(super) fn quantity(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let unit = match &text[digits..] {
        "" => Some(1),
        "k" => Some(1000),
        "M" => Some(1000 * 1000),
        "G" => Some(1000 * 1000 * 1000),
        "Ki" => Some(1024),
        "Mi" => Some(1024 * 1024),
        "Gi" => Some(1024 * 1024 * 1024),
        _ => None,
    };
    let bytes =
        text[..digits].parse().ok().zip(unit).and_then(|(number, unit): (usize, usize)| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes >= LEAST => Ok(bytes),
        Some(_) => Err("64Mi at least".to_owned()),
        None => Err("write it as in 512Mi or 1Gi".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_kubernetes_writes_it() {
        for (text, bytes) in [("512Mi", 512 << 20), ("1Gi", 1 << 30), ("500M", 500_000_000), ("67108864", 64 << 20)] {
            assert_eq!(quantity(text), Ok(bytes), "{text}");
        }
        for (text, problem) in [("63Mi", "64Mi at least"), ("512", "64Mi at least"), ("much", "write it as in")] {
            assert!(quantity(text).unwrap_err().contains(problem), "{text}");
        }
        for text in ["", "-1Gi", "1.5Gi", "1Ei", "99999999999999999Gi"] {
            assert!(quantity(text).unwrap_err().contains("write it as in"), "{text}");
        }
    }

    #[test]
    fn the_limit_is_the_smallest_of_the_process_cgroups() {
        let root = tempfile::tempdir().unwrap();
        let write = |cgroup: &str, limit: &str| {
            std::fs::create_dir_all(root.path().join(cgroup)).unwrap();
            std::fs::write(root.path().join(cgroup).join("memory.max"), format!("{limit}\n")).unwrap();
        };
        write("pods/one", "536870912");
        write("pods", "1073741824");
        let of = |own: &str| least_of(root.path(), own);
        assert_eq!((of("0::/pods/one\n"), of("0::/pods\n")), (Some(512 << 20), Some(1 << 30)));
        assert_eq!((of("0::/\n"), of("1:memory:/pods\n")), (None, None));
        write("pods/one", "max");
        assert_eq!(of("0::/pods/one\n"), Some(1 << 30));
        // A container sees its own limit in the root of its cgroup namespace.
        write("", "268435456");
        assert_eq!(of("0::/\n"), Some(256 << 20));
    }
}
