//! Real identity providers as child processes: the example provider of Zitadel's Go library, and npm's `oidc-provider`.
//!
//! Both listen on loopback, give tokens by client credentials (RFC 6749, section 4.4) with the audience that is asked
//! for, and end with the process that started them, whichever way it ends. `make identity-providers` builds them
//! (hack/identity-providers).

mod http;
mod process;
mod signer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use self::http::Http;
use self::process::{Process, Program};
pub use self::signer::{Signer, encode, unsigned};

/// The time that a provider may take to start, to rotate, and to answer a call.
const DEADLINE: Duration = Duration::from_mins(1);

/// The client that may introspect tokens at [`Provider::oidc_provider`].
pub const INTROSPECTION_CLIENT: Client = Client { id: "gate", secret: "gate-secret" };

/// The client that may exchange tokens at [`Provider::zitadel`] (RFC 8693).
pub const EXCHANGE_CLIENT: Client = Client { id: "exchanger", secret: "exchanger-secret" };

/// A client that a provider knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: &'static str,
    /// Its secret.
    pub secret: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zitadel,
    OidcProvider,
}

/// The certificate with which a provider serves HTTPS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// File with the PEM of its certificate, which is for 127.0.0.1.
    pub certificate: PathBuf,
    /// File with the PEM of its key.
    pub key: PathBuf,
    /// PEM of the authority that callers trust.
    pub ca_pem: String,
}

/// A running identity provider.
#[derive(Debug)]
pub struct Provider {
    kind: Kind,
    tls: Option<Tls>,
    issuer: String,
    /// Nothing while it is stopped.
    process: Option<Process>,
    http: Http,
}

impl Provider {
    /// Starts the example provider of Zitadel's library. It signs with RS256.
    pub async fn zitadel() -> Result<Self> {
        Self::start(Kind::Zitadel, None).await
    }

    /// Starts npm's `oidc-provider`. It signs with ES256, gives opaque tokens too, and introspects them.
    pub async fn oidc_provider() -> Result<Self> {
        Self::start(Kind::OidcProvider, None).await
    }

    /// Starts npm's `oidc-provider` on HTTPS.
    pub async fn oidc_provider_tls(tls: Tls) -> Result<Self> {
        Self::start(Kind::OidcProvider, Some(tls)).await
    }

    async fn start(kind: Kind, tls: Option<Tls>) -> Result<Self> {
        let process = Process::start(&program(kind, SocketAddr::from(([127, 0, 0, 1], 0)), tls.as_ref())?).await?;
        let http = Http::new(tls.as_ref().map(|tls| tls.ca_pem.as_str()))?;
        Ok(Self { kind, tls, issuer: process.issuer.clone(), process: Some(process), http })
    }

    /// The issuer: a URL on 127.0.0.1 with a port of its own, which stays when it is started again.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// PEM of the authority that callers trust; nothing where it speaks plain HTTP.
    pub fn ca_pem(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// Its discovery document (OpenID Connect Discovery 1.0, section 4).
    pub async fn discovery(&self) -> Result<Value> {
        self.http.get(&format!("{}/.well-known/openid-configuration", self.issuer)).await
    }

    /// A JWT for this audience, an absolute URI.
    pub async fn token(&self, audience: &str) -> Result<String> {
        match self.kind {
            Kind::Zitadel => {
                let client = Client { id: "sid1", secret: "verysecret" };
                self.credentials(client, ("scope", &format!("audience:{audience}"))).await
            }
            Kind::OidcProvider => {
                let client = Client { id: "caller", secret: "caller-secret" };
                self.credentials(client, ("resource", audience)).await
            }
        }
    }

    /// A JWT for this audience, of this subject. Only Zitadel's provider gives them.
    pub async fn token_of(&self, audience: &str, subject: &str) -> Result<String> {
        if self.kind != Kind::Zitadel {
            bail!("only Zitadel's provider gives tokens of any subject here");
        }
        let client = Client { id: "sid1", secret: "verysecret" };
        self.credentials(client, ("scope", &format!("audience:{audience} subject:{subject}"))).await
    }

    /// The number of tokens that it has exchanged since its start. Only Zitadel's provider exchanges them.
    pub fn exchanges(&self) -> Result<usize> {
        let process = self.process.as_ref().context("the provider is stopped")?;
        Ok(process.said()?.matches("exchanged a token").count())
    }

    /// A token for this audience that only the provider can read. Only `oidc-provider` gives them.
    pub async fn opaque_token(&self, audience: &str) -> Result<String> {
        if self.kind != Kind::OidcProvider {
            bail!("only oidc-provider gives opaque tokens here");
        }
        let client = Client { id: "opaque-caller", secret: "opaque-caller-secret" };
        self.credentials(client, ("resource", audience)).await
    }

    async fn credentials(&self, client: Client, audience: (&str, &str)) -> Result<String> {
        let discovery = self.discovery().await?;
        let endpoint = discovery["token_endpoint"].as_str().context("the discovery document has no token_endpoint")?;
        let answer = self.http.post(endpoint, client, &[("grant_type", "client_credentials"), audience]).await?;
        answer["access_token"].as_str().map(str::to_owned).with_context(|| format!("no token: {answer}"))
    }

    /// Signs with a new key from now on. `oidc-provider` still publishes the former one, and forgets opaque tokens;
    /// Zitadel's, whose key lives as long as its process, is started again at its address.
    pub async fn rotate_keys(&mut self) -> Result<()> {
        match self.kind {
            Kind::Zitadel => {
                self.stop().await?;
                self.start_again().await
            }
            Kind::OidcProvider => self.process.as_mut().context("the provider is stopped")?.ask("rotate").await,
        }
    }

    /// Ends it; its address is free when this returns.
    pub async fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }

    /// Starts it at the same address, with new keys.
    pub async fn start_again(&mut self) -> Result<()> {
        let address = self.issuer.split("://").nth(1).context("an issuer is a URL")?.parse()?;
        self.process = Some(Process::start(&program(self.kind, address, self.tls.as_ref())?).await?);
        Ok(())
    }
}

fn program(kind: Kind, address: SocketAddr, tls: Option<&Tls>) -> Result<Program> {
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/identity-providers");
    let mut program = match kind {
        Kind::Zitadel => Program::new(installed(&hack, "go")?),
        Kind::OidcProvider => {
            let mut node = Program::new("node");
            node.environment.push(("IDENTITY_MODULES", installed(&hack, "node")?.into()));
            node.arguments.push(hack.join("provider.mjs").into());
            node
        }
    };
    program.arguments.push(address.to_string().into());
    if let Some(tls) = tls {
        program.arguments.extend([tls.certificate.clone().into(), tls.key.clone().into()]);
    }
    Ok(program)
}

/// Where `hack/identity-providers/build.sh` keeps a thing, which must be there.
fn installed(hack: &Path, what: &str) -> Result<PathBuf> {
    let output = std::process::Command::new(hack.join("build.sh")).args(["where", what]).output()?;
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if !path.exists() {
        bail!("{} is missing: run `make identity-providers`", path.display());
    }
    Ok(path)
}
