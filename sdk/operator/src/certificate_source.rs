//! Sources of an installation's certificates.

use std::sync::Arc;

use kube::Client;
use rustls::crypto::CryptoProvider;

use crate::{Components, Installation};
use portcullis_certificates::{Automatic, CertificateSource, Configurations, ProvidedBy, ProvidedCertificates};
use portcullis_manifest::CertificateMode;
use portcullis_metrics::Metrics;

/// Its source of certificates, published in these objects, counted in these metrics, at the times of these components.
pub(crate) fn certificate_source(
    installation: &Installation,
    components: &Components,
    client: Client,
    provider: Arc<CryptoProvider>,
    configurations: Configurations,
    metrics: &Metrics,
) -> CertificateSource {
    let provided_by = match installation.certificates {
        CertificateMode::Automatic => {
            let maker = certificate_maker(installation, components, client, provider, configurations, metrics);
            return CertificateSource::Automatic(maker);
        }
        CertificateMode::CertManager => ProvidedBy::CertManager,
        CertificateMode::External => ProvidedBy::User,
        CertificateMode::Hooks => ProvidedBy::Hooks,
    };
    let (namespace, secret) = (installation.namespace.clone(), installation.secret.clone());
    let mut source =
        ProvidedCertificates::new(client, namespace, secret, installation.server_name(), provided_by, provider);
    source.time_of_day = components.time_of_day.clone();
    CertificateSource::ProvidedCertificates(source.publish_to(configurations).with_metrics(metrics))
}

/// Makes the source of certificates that are made here: by the operator itself, or by a command for an operator that
/// reads them.
pub(super) fn certificate_maker(
    installation: &Installation,
    components: &Components,
    client: Client,
    provider: Arc<CryptoProvider>,
    configurations: Configurations,
    metrics: &Metrics,
) -> Automatic {
    let (namespace, secret) = (installation.namespace.clone(), installation.secret.clone());
    let mut maker = Automatic::new(client, namespace, secret, installation.server_names(), provider);
    maker.timing = components.rotation_timing.clone();
    maker.time_of_day = components.time_of_day.clone();
    maker.publish_to(configurations).with_metrics(metrics)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::time::Duration;

    use http::{Request, Response};
    use jiff::{SignedDuration, Timestamp};
    use kube::client::Body;

    use super::*;
    use crate::Operator;
    use portcullis_certificates::{RotationTiming, TimeOfDay};

    #[tokio::test]
    async fn certificates_follow_the_operators_timing_and_clock() {
        let year = SignedDuration::from_hours(24 * 365);
        let timing = RotationTiming { settle: Duration::from_secs(7), ..RotationTiming::default() };
        let components =
            Components::default().rotation_timing(timing.clone()).time_of_day(TimeOfDay::with_offset(year));
        for mode in CertificateMode::ALL {
            let mut installation = Operator::new("op").installation("here").unwrap();
            installation.certificates = mode;
            let nobody = tower::service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let (client, metrics) = (Client::new(nobody, "here"), Metrics::new());
            let source =
                certificate_source(&installation, &components, client, provider, Configurations::default(), &metrics);
            let clock = match source {
                CertificateSource::Automatic(automatic) => {
                    assert_eq!(automatic.timing, timing);
                    automatic.time_of_day
                }
                CertificateSource::ProvidedCertificates(supplied) => supplied.time_of_day,
            };
            assert!(clock.now().duration_since(Timestamp::now()) > year - SignedDuration::from_mins(1), "{mode:?}");
        }
    }
}
