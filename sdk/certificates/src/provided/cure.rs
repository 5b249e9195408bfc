//! The advice for a problem, in one sentence.

use portcullis_pki::PairProblem;

use super::check::Problem;

/// The owner of the Secret, which fills it and publishes its CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvidedBy {
    /// cert-manager, by a Certificate and its CA injector.
    CertManager,
    /// A user, or another program.
    User,
    /// Commands of the operator's binary, at each installation and upgrade: `certs ensure` and `certs publish`.
    Hooks,
}

/// The Secret that a problem is about, and its owner.
pub(super) struct Place<'a> {
    pub(super) provided_by: ProvidedBy,
    pub(super) namespace: &'a str,
    pub(super) secret: &'a str,
    pub(super) server_name: &'a str,
    /// The Certificate of cert-manager that the Secret comes from.
    pub(super) certificate: &'a str,
}

impl Place<'_> {
    pub(super) fn cure(&self, problem: &Problem) -> String {
        match self.provided_by {
            ProvidedBy::CertManager => self.cert_manager(problem),
            ProvidedBy::User => self.user(problem),
            ProvidedBy::Hooks => {
                "'certs ensure --certificates hooks' makes or repairs it; a chart runs that before each \
                                  installation and upgrade: 'helm upgrade'"
                    .to_owned()
            }
        }
    }

    /// Advises on a published bundle under which callers do not accept the pair.
    pub(super) fn publish(&self) -> String {
        match self.provided_by {
            ProvidedBy::CertManager => format!(
                "cert-manager's CA injector fills it in by the annotation 'cert-manager.io/inject-ca-from: {}/{}': is the \
                 annotation there ('generate webhooks', 'generate crds'), and does the injector run?",
                self.namespace, self.certificate,
            ),
            ProvidedBy::User => format!(
                "apply what 'generate webhooks --ca-bundle FILE' and 'generate crds --ca-bundle FILE' print, where FILE is \
                 ca.crt of Secret {}/{}; while a CA is replaced, the old and the new one after another",
                self.namespace, self.secret,
            ),
            ProvidedBy::Hooks => "'certs publish --certificates hooks' writes it; a chart runs that after each \
                                  installation and upgrade: 'helm upgrade'"
                .to_owned(),
        }
    }

    fn cert_manager(&self, problem: &Problem) -> String {
        let Self { namespace, secret, server_name, certificate: name, .. } = self;
        let certificate = format!("Certificate {namespace}/{name}");
        let look = format!("'kubectl -n {namespace} describe certificate {name}' says what keeps cert-manager");
        match problem {
            Problem::NoSecret => format!("apply what 'generate certificates' prints; {look} from issuing it"),
            Problem::MissingKey("ca.crt") | Problem::EmptyKey("ca.crt") => {
                format!("the issuer of {certificate} gives no CA: use an Issuer that does, one of type CA for example")
            }
            Problem::Pair { problem: PairProblem::MissingName { .. } } => {
                format!("add '{server_name}' to spec.dnsNames of {certificate}")
            }
            Problem::Pair { problem: PairProblem::NotForServers } => {
                format!("take spec.isCA out of {certificate} and have 'server auth' in its spec.usages")
            }
            Problem::Pair { problem: PairProblem::Expired { .. } | PairProblem::NotYetValid { .. } } => {
                format!("{look} from renewing it; compare the clocks of the nodes too")
            }
            _ => format!(
                "'kubectl -n {namespace} delete secret {secret}' has cert-manager issue it again; if it stays so, see the \
                 issuer of {certificate}"
            ),
        }
    }

    fn user(&self, problem: &Problem) -> String {
        let Self { namespace, secret, server_name, .. } = self;
        let put = format!(
            "kubectl -n {namespace} create secret generic {secret} --type=kubernetes.io/tls --from-file=tls.crt \
             --from-file=tls.key --from-file=ca.crt"
        );
        let again = format!("'{put} --dry-run=client -o yaml | kubectl apply -f -'");
        match problem {
            Problem::NoSecret => format!("make it: '{put}'"),
            Problem::MissingKey(_) | Problem::EmptyKey(_) => format!("put all three files in: {again}"),
            Problem::Pair { problem: PairProblem::MissingName { .. } } => format!(
                "have a certificate issued with the subject alternative name DNS:{server_name} (a common name does not \
                 count), and put it in: {again}"
            ),
            Problem::Pair { problem: PairProblem::Expired { .. } } => {
                format!("have a new certificate issued, and put it in: {again}")
            }
            Problem::Pair { problem: PairProblem::NotYetValid { .. } } => {
                format!("wait until then, compare this node's clock, or put in one that is valid now: {again}")
            }
            Problem::Pair { problem: PairProblem::NotForServers } => format!(
                "have a server's certificate issued (CA:FALSE, extended key usage 'serverAuth') by the CA, and put it in: \
                 {again}"
            ),
            Problem::Pair { problem: PairProblem::KeyMismatch | PairProblem::Key(_) } => {
                format!("put in the certificate and the key that it was issued for: {again}")
            }
            Problem::Pair { problem: PairProblem::Bundle(_) } | Problem::Trust(_) => format!(
                "ca.crt must hold the CA, valid now, that has signed tls.crt, and tls.crt the intermediate certificates \
                 after its own: {again}"
            ),
            Problem::Pair { .. } | Problem::Refused(_) => format!("put in a certificate that can be served: {again}"),
        }
    }
}
