//! Which addresses a proxy may call: a URL of somebody else's must not lead it to the network that it runs in (toolhive-operator §1.6,
//! toolhive-auth §7).
//!
//! The address that a name leads to is judged at each connection to a remote server, an identity provider or a webhook: only that holds
//! against a name whose address changes. Where the text of a URL tells sooner, it is judged by the same rules: of remote servers and
//! identity providers when their objects are admitted, and of remote servers when the proxy starts, too.
//!
//! ```
//! use mcp_runconfig::endpoint::{AddressClass, check_url, class};
//!
//! assert_eq!(class("10.0.0.1".parse()?), AddressClass::Private);
//! assert!(check_url("https://10.0.0.1/mcp", false).is_err());
//! assert!(check_url("https://10.0.0.1/mcp", true).is_ok());
//! assert!(check_url("https://169.254.169.254/", true).is_err());
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod class;
mod host;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
pub use ipnet::IpNet;

pub use self::class::{AddressClass, class, is_metadata};
use self::host::Host;

/// Which addresses may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// The addresses that may be called.
    pub reach: Reach,
    /// Networks whose addresses all count as public.
    pub exempt: Vec<IpNet>,
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
    /// It has a user or a password in it.
    #[error("has a user name in it; remove it, and send credentials in a header that comes from a Secret")]
    Credentials,
    /// Its host is neither a name nor an address.
    #[error(
        "host {0:?} is neither a name nor an address in its usual form; write it as a name, 192.0.2.1 or [2001:db8::1]"
    )]
    Host(String),
    /// Its host is one that nobody may call.
    #[error(
        "host {0:?} is the proxy itself, a link-local, metadata or otherwise reserved address, or the Kubernetes API; name another server"
    )]
    Forbidden(String),
    /// Its host is in a private network.
    #[error("host {0:?} is in a private network; name a public server, or allow private endpoints")]
    Private(String),
}

/// Judges the text of `url`; a name that leads to a private address passes, and is refused when it is called.
///
/// # Errors
/// Why not, and what to write instead.
pub fn check_url(url: &str, allow_private: bool) -> Result<(), EndpointError> {
    EndpointPolicy::new(allow_private, Vec::new()).check_url(url)
}

impl EndpointPolicy {
    /// Public addresses, private ones where `allow_private`, and those in `exempt`.
    pub fn new(allow_private: bool, exempt: Vec<IpNet>) -> Self {
        Self { reach: if allow_private { Reach::Private } else { Reach::Public }, exempt }
    }

    /// Whether `address` may be called.
    pub fn allows(&self, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        self.exempt.iter().any(|network| network.contains(&canonical))
            || match self.reach {
                Reach::AllButMetadata => !is_metadata(address),
                Reach::Public | Reach::Private => self.reaches(class(address)),
            }
    }

    /// Judges the text of `url`.
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
        let (allowed, class) = match Host::parse(text).ok_or_else(|| EndpointError::Host(text.to_owned()))? {
            Host::Address(address) => (self.allows(address), class(address)),
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

    fn reaches(&self, class: AddressClass) -> bool {
        class == AddressClass::Public || class == AddressClass::Private && self.reach == Reach::Private
    }
}

#[cfg(test)]
mod tests;
