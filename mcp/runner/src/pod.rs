//! The environment of a proxy in a pod.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use mcp_runconfig::environment::{KUBERNETES_SERVICE_HOST, POD_HOME, is_unread_in_pods};

/// Removes the variables that a proxy in a pod [does not read](is_unread_in_pods): where there is one, the program starts anew in this
/// process without them. Libraries read them too, and no running process may safely change its environment.
///
/// # Errors
/// When the program cannot be started anew.
pub fn remove_unread_variables() -> io::Result<()> {
    // kubelet sets it in every pod, and the operator lets no user set it.
    if std::env::var_os(KUBERNETES_SERVICE_HOST).is_none() {
        return Ok(());
    }
    let is_unread = |(name, value): &(OsString, OsString)| {
        name.to_str().is_some_and(is_unread_in_pods) && !(name == "HOME" && value == POD_HOME)
    };
    let unread: Vec<_> = std::env::vars_os().filter(is_unread).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let mut program = Command::new(std::env::current_exe()?);
    program.args(std::env::args_os().skip(1));
    for (name, _) in unread {
        program.env_remove(name);
    }
    Err(program.env("HOME", POD_HOME).exec())
}
