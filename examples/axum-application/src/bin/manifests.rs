//! The operator's own command line: `manifests generate rbac`, `manifests generate webhooks`, `manifests doctor`.

use std::process::ExitCode;

fn main() -> ExitCode {
    axum_application::operator().main()
}
