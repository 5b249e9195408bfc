//! The environment of a proxy in a pod.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use mcp_runconfig::environment::{KUBERNETES_SERVICE_HOST, POD_HOME, is_unread_in_pods};

/// By it TLS libraries find the root certificates that they trust.
const ROOTS: &str = "SSL_CERT_FILE";

/// Gives the program the environment that it is to run in. In a pod that has none of the variables that proxies there
/// [do not read](is_unread_in_pods); with `--ca-bundle=FILE`, that file is what TLS trusts. Where the environment is another one, the program
/// starts anew in this process: libraries read it too, and no running process may safely change it.
///
/// # Errors
/// When the program cannot be started anew.
pub fn prepare_environment() -> io::Result<()> {
    // kubelet sets it in every pod, and the operator lets no user set it.
    let is_pod = env::var_os(KUBERNETES_SERVICE_HOST).is_some();
    let mut wanted: Vec<(&str, OsString)> = ca_bundle().map(|file| (ROOTS, file)).into_iter().collect();
    if is_pod && env::var_os("HOME").is_some() {
        wanted.push(("HOME", POD_HOME.into()));
    }
    let is_wanted = |name: &str| wanted.iter().any(|(wanted, _)| *wanted == name);
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let removed: Vec<_> = names.filter(|name| is_pod && is_unread_in_pods(name) && !is_wanted(name)).collect();
    if removed.is_empty() && wanted.iter().all(|(name, value)| env::var_os(name).as_ref() == Some(value)) {
        return Ok(());
    }
    let mut program = Command::new(env::current_exe()?);
    program.args(env::args_os().skip(1)).envs(wanted);
    for name in removed {
        program.env_remove(name);
    }
    Err(program.exec())
}

/// The file of the last `--ca-bundle=FILE` on the command line.
fn ca_bundle() -> Option<OsString> {
    let own = env::args_os().skip(1).take_while(|argument| argument != "--");
    own.filter_map(|argument| argument.to_str()?.strip_prefix("--ca-bundle=").map(OsString::from)).last()
}
