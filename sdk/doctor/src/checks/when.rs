//! Conditions under which there is something to check; the error says why there is not.

use portcullis_manifest::CertificateMode;

use crate::subject::{Options, Subject};

type When = Result<(), &'static str>;

#[allow(clippy::unnecessary_wraps, reason = "all conditions have one signature, for the table")]
pub(super) fn always(_: &Subject, _: &Options) -> When {
    Ok(())
}

pub(super) fn webhooks(subject: &Subject, _: &Options) -> When {
    if subject.is_called() { Ok(()) } else { Err("nothing to look at: this installation serves no webhooks") }
}

pub(super) fn cluster_wide(subject: &Subject, options: &Options) -> When {
    webhooks(subject, options)?;
    let restricted = subject.installation.restricted_to.is_some();
    if restricted { Err("a restricted operator looks at no other's Lease") } else { Ok(()) }
}

pub(super) fn cert_manager(subject: &Subject, options: &Options) -> When {
    webhooks(subject, options)?;
    let issued = subject.installation.certificates == CertificateMode::CertManager;
    if issued { Ok(()) } else { Err("certificates do not come from cert-manager") }
}

pub(super) fn a_namespace(subject: &Subject, options: &Options) -> When {
    webhooks(subject, options)?;
    let asked = options.in_namespace.is_some() || subject.installation.restricted_to.is_some();
    if asked { Ok(()) } else { Err("give --in-namespace to know whether a namespace is selected") }
}

pub(super) fn an_object(_: &Subject, options: &Options) -> When {
    let asked = options.object.as_ref();
    asked.map(|_| ()).ok_or("give --object NAME (and --in-namespace) to see what was decided about it")
}

pub(super) fn a_denial(_: &Subject, options: &Options) -> When {
    options.denial.as_ref().map(|_| ()).ok_or("give --denial 'MESSAGE' to know who refused a request")
}
