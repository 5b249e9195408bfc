//! Which addresses a proxy may call: a URL of somebody else's must not lead it to the network that it runs in (toolhive-operator §1.6,
//! toolhive-auth §7).
//!
//! The address that a name leads to is judged at each connection to a remote server, an identity provider or a webhook: only that holds
//! against a name whose address changes. Where the text of a URL tells sooner, it is judged by the same rules: of remote servers and
//! identity providers when their objects are admitted, and of remote servers when the proxy starts, too.
//!
//! ```
//! use mcp_runconfig::endpoint::EndpointPolicy;
//!
//! let [public, private] = [false, true].map(|private| EndpointPolicy::new(private, Vec::new()));
//! assert!(public.check_url("https://10.0.0.1/mcp").is_err());
//! assert!(private.check_url("https://10.0.0.1/mcp").is_ok());
//! assert!(private.check_url("https://169.254.169.254/").is_err());
//! assert!(private.allows("10.0.0.1".parse()?));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod class;
mod egress;
mod host;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
pub use ipnet::IpNet;

pub use self::egress::{DIRECT, Egress};

use self::class::{AddressClass, class, is_metadata, leads_to};
use self::host::Host;

/// Which addresses may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// The addresses that may be called.
    pub reach: Reach,
    /// Networks whose addresses all count as public.
    pub exempt_endpoints: Vec<IpNet>,
    /// The address of the Kubernetes API, which counts as forbidden. `None` where it is not known. [`Reach::AllButMetadata`] does not ask for it.
    pub kubernetes_api: Option<IpAddr>,
    /// The proxy through which https servers are called. `None`: they are called directly.
    pub egress: Option<Egress>,
}

/// How far calls may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To public addresses.
    Public,
    /// To private addresses as well, and never to forbidden ones.
    Private,
    /// Anywhere but to link-local and the other addresses where clouds answer for the machine's credentials.
    AllButMetadata,
}

/// Why a URL may not be called. Each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is not an absolute URL of http or https.
    #[error("is not a URL of http or https; write one such as https://mcp.example.com/mcp")]
    NotAUrl,
    /// A client would call another port in its place.
    #[error("has a port that no server has; write a number from 1 to 65535, or none")]
    Port,
    /// It has a user or a password in it.
    #[error("has a user name in it; remove it, and send credentials in a header that comes from a Secret")]
    Credentials,
    /// It ends with more than the path that something is added to.
    #[error("has a query or a fragment; remove it")]
    Query,
    /// Its host is neither a name nor an address.
    #[error(
        "host {0:?} is neither a name nor an address in its usual form; write it as a name, 192.0.2.1 or [2001:db8::1]"
    )]
    Host(String),
    /// Its host is one that nobody may call.
    #[error(
        "host {0:?} is the proxy itself, a link-local, metadata or otherwise reserved address, or the Kubernetes API; name another server, or see --allow-endpoint-cidr"
    )]
    Forbidden(String),
    /// Its host is in a private network.
    #[error(
        "host {0:?} is in a private network; name a public server, or allow private endpoints: spec.allowPrivateEndpoint of an \
         MCPRemoteProxy, spec.inline.jwksAllowPrivateIP of an MCPOIDCConfig"
    )]
    Private(String),
}

impl EndpointPolicy {
    /// Public addresses, private ones where `allow_private`, and those in `exempt_endpoints`.
    pub fn new(allow_private: bool, exempt_endpoints: Vec<IpNet>) -> Self {
        let reach = if allow_private { Reach::Private } else { Reach::Public };
        Self { reach, exempt_endpoints, kubernetes_api: None, egress: None }
    }

    /// Every address but those where clouds answer for the machine's credentials: for servers that are beside the proxy more often than not.
    pub fn all_but_metadata(exempt_endpoints: Vec<IpNet>) -> Self {
        Self { reach: Reach::AllButMetadata, ..Self::new(true, exempt_endpoints) }
    }

    /// Whether `address` may be called.
    pub fn allows(&self, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        self.exempt_endpoints.iter().any(|network| network.contains(&canonical))
            || match self.reach {
                Reach::AllButMetadata => !is_metadata(address),
                Reach::Public | Reach::Private => self.reaches(self.class(address)),
            }
    }

    /// Judges the text of `url`; a name that leads to an address that may not be called passes, and is refused when it is called.
    ///
    /// # Errors
    /// Why it may not be called, and what to write instead.
    pub fn check_url(&self, url: &str) -> Result<(), EndpointError> {
        let uri: Uri = url.parse().map_err(|_| EndpointError::NotAUrl)?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EndpointError::NotAUrl);
        };
        if authority.as_str().contains('@') {
            return Err(EndpointError::Credentials);
        }
        let text = authority.host();
        let port = authority.as_str().get(text.len() + 1..).unwrap_or_default();
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(EndpointError::Port);
        }
        let (allowed, class) = match Host::parse(text).ok_or_else(|| EndpointError::Host(text.to_owned()))? {
            Host::Address(address) => (self.allows(address), self.class(address)),
            // It leads to either, whatever the resolver has.
            Host::Localhost => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                (loopback.into_iter().any(|address| self.allows(address)), AddressClass::Forbidden)
            }
            Host::Name(class) => (self.reach == Reach::AllButMetadata || self.reaches(class), class),
        };
        match (allowed, class) {
            (true, _) => Ok(()),
            (false, AddressClass::Private) => Err(EndpointError::Private(text.to_owned())),
            (false, _) => Err(EndpointError::Forbidden(text.to_owned())),
        }
    }

    /// Judges the text of a URL whose path is continued.
    ///
    /// # Errors
    /// Why nothing below it may be called, and what to write instead.
    pub fn check_base_url(&self, url: &str) -> Result<(), EndpointError> {
        self.check_url(url)?;
        if url.contains(['?', '#']) { Err(EndpointError::Query) } else { Ok(()) }
    }

    fn class(&self, address: IpAddr) -> AddressClass {
        if self.is_api(address) { AddressClass::Forbidden } else { class(address) }
    }

    fn is_api(&self, address: IpAddr) -> bool {
        self.kubernetes_api.is_some_and(|api| leads_to(api) == leads_to(address))
    }

    fn reaches(&self, class: AddressClass) -> bool {
        class == AddressClass::Public || class == AddressClass::Private && self.reach == Reach::Private
    }
}

/// `url` as far as a log may show it: its query and what stands before an `@` may hold secrets. It need not be a URL.
pub fn without_secrets(url: &str) -> String {
    let open = url.split(['?', '#']).next().unwrap_or_default();
    match (open.find("//"), open.rfind('@')) {
        (Some(start), Some(end)) if start < end => format!("{}//…{}", &open[..start], &open[end..]),
        _ => open.to_owned(),
    }
}

#[cfg(test)]
mod tests;
