//! Certificates for a run on this machine.

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Pair, PkiError, Usage};

/// A new CA, and a server's certificate of it for `localhost` and 127.0.0.1: valid for a day, and since an hour ago.
pub fn localhost() -> Result<(Ca, Pair), PkiError> {
    let now = Timestamp::now();
    let (not_before, not_after) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24));
    let ca = Ca::generate("portcullis localhost ca", not_before, not_after)?;
    let pair = ca.issue(&CertificateParams {
        common_name: "localhost",
        organizations: &[],
        dns_names: &["localhost".to_owned()],
        ip_addresses: &[[127, 0, 0, 1].into()],
        not_before,
        not_after,
        usage: Usage::Server,
    })?;
    Ok((ca, pair))
}
