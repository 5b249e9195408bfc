//! `certs show`.

use std::fmt;

use jiff::Timestamp;
use portcullis_pki::rotation::{Anchor, Stored};
use portcullis_pki::{Certificate, check_trust};
use serde::Serialize;

use super::name;
use crate::Installation;
use portcullis_certificates::{CertificateSource, read_published};

/// The stored and the published certificates.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    secret: String,
    /// Problems with the stored certificates, each with its fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// The phase of a rotation; `None` if there are problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    certificates: Vec<Shape>,
    pub(super) published: Vec<Published>,
}

/// One certificate.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    role: &'static str,
    subject: String,
    not_before: Timestamp,
    not_after: Timestamp,
    fingerprint: String,
}

/// Whether callers accept the stored pair, by one entry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Published {
    pub(super) object: String,
    pub(super) entry: String,
    /// Nothing when they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl Shape {
    fn of(role: &'static str, certificate: &Certificate) -> Self {
        let Certificate { common_name, dns_names, not_before, not_after, fingerprint, .. } = certificate;
        let subject = if dns_names.is_empty() { common_name.clone() } else { dns_names.join(", ") };
        Self { role, subject, not_before: *not_before, not_after: *not_after, fingerprint: fingerprint.clone() }
    }
}

/// Reads all of it; changes nothing.
pub(super) async fn look(installation: &Installation, source: &CertificateSource) -> anyhow::Result<Shown> {
    let secret = format!("{}/{}", installation.namespace, installation.secret);
    let mut shown =
        Shown { secret, problems: Vec::new(), phase: None, certificates: Vec::new(), published: Vec::new() };
    let chain = match source {
        CertificateSource::Automatic(automatic) => {
            shown.stored(&automatic.stored().await?, &automatic.missing_secrets().await?);
            automatic.stored_chain().await?
        }
        CertificateSource::ProvidedCertificates(supplied) => match supplied.stored().await {
            Ok((material, leaf, ca)) => {
                shown.certificates = vec![Shape::of("leaf", &leaf), Shape::of("ca", &ca)];
                Some(material.cert_pem)
            }
            Err(error) => {
                shown.problems.push(error.to_string());
                None
            }
        },
    };
    for object in read_published(source.client(), source.configurations()).await {
        let name = object.object.clone();
        for (entry, bundle) in object.own_entries()? {
            let problem = match (bundle, &chain) {
                (Err(problem), _) => Some(problem),
                (Ok(_), None) => Some("there is no certificate that could be trusted by it".to_owned()),
                (Ok(bundle), Some(chain)) => {
                    check_trust(chain.as_bytes(), &bundle, Timestamp::now()).err().map(|problem| problem.to_string())
                }
            };
            shown.published.push(Published { object: name.clone(), entry, problem });
        }
    }
    Ok(shown)
}

impl Shown {
    /// Whether there is nothing to fix.
    pub(super) fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.published.iter().all(|entry| entry.problem.is_none())
    }

    fn stored(&mut self, stored: &Stored, (no_ca, no_pair): &(Option<String>, Option<String>)) {
        let gone = |name: &String| format!("Secret {name} does not exist");
        match &stored.leaf {
            Ok(leaf) => self.certificates.push(Shape::of("leaf", leaf)),
            Err(problem) => self.problems.push(no_pair.as_ref().map_or_else(|| problem.to_string(), gone)),
        }
        match &stored.authorities {
            Ok(authorities) => {
                self.phase = Some(name(authorities.phase()));
                if !stored.publishes_all {
                    self.problems.push("ca.crt beside the certificate is not the bundle of the stored CAs".to_owned());
                }
                self.certificates.push(Shape::of("ca", authorities.current.certificate()));
                self.certificates.extend(authorities.next.iter().map(|next| Shape::of("next ca", next.certificate())));
                let previous = authorities.previous.iter().map(Anchor::certificate);
                self.certificates.extend(previous.map(|previous| Shape::of("previous ca", previous)));
            }
            Err(lost) => self.problems.push(no_ca.as_ref().map_or_else(|| lost.problem.clone(), gone)),
        }
        self.problems.extend(stored.damage.iter().cloned());
        if !self.problems.is_empty() {
            self.phase = None;
            self.problems.push("'certs ensure' makes and repairs what is missing".to_owned());
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Secret {}{}", self.secret, self.phase.map(|phase| format!(": {phase}")).unwrap_or_default())?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "  ! {problem}"))?;
        for Shape { role, subject, not_before, not_after, fingerprint } in &self.certificates {
            let short = fingerprint.get(..16).unwrap_or(fingerprint);
            writeln!(f, "  {role:<12} {not_before} to {not_after}  {short}  {subject}")?;
        }
        writeln!(f, "Published in")?;
        for Published { object, entry, problem } in &self.published {
            match problem {
                None => writeln!(f, "  ok {object}, {entry}")?,
                Some(problem) => writeln!(f, "  !  {object}, {entry}: {problem}")?,
            }
        }
        Ok(())
    }
}
