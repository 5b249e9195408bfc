//! Where an installation's certificates come from.

use std::sync::Arc;

use kube::Client;
use rustls::crypto::CryptoProvider;

use crate::certificates::{Automatic, CertificateMode, CertificateSource, Configurations, Supplied, Supplier};
use crate::metrics::Metrics;
use crate::operator::Installation;

impl Installation {
    /// Its source of certificates, published in these objects, counted in these metrics.
    pub(in crate::operator) fn certificate_source(
        &self,
        client: Client,
        provider: Arc<CryptoProvider>,
        configurations: Configurations,
        metrics: &Metrics,
    ) -> CertificateSource {
        let (namespace, secret) = (self.namespace.clone(), self.secret.clone());
        let supplier = match self.certificates {
            CertificateMode::Automatic => {
                let automatic = Automatic::new(client, namespace, secret, self.server_names(), provider);
                return CertificateSource::Automatic(automatic.published_in(configurations).counted_in(metrics));
            }
            CertificateMode::CertManager => Supplier::CertManager,
            CertificateMode::External => Supplier::User,
        };
        let source = Supplied::new(client, namespace, secret, self.server_name(), supplier, provider);
        CertificateSource::Supplied(source.published_in(configurations).counted_in(metrics))
    }
}
