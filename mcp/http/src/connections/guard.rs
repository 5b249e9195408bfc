//! Which of a server's addresses may be called: decided between the lookup of its name and the connection, each time.
//!
//! So a name whose address changes after it was checked leads nowhere else.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use mcp_runconfig::endpoint::EndpointPolicy;
use tower::Service;

use crate::body::BoxError;

/// The policy allows none of the addresses that a server has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} has the address {address}, which may not be called; see --allow-endpoint-cidr")]
pub struct ForbiddenAddress {
    host: String,
    address: IpAddr,
}

impl ForbiddenAddress {
    /// The one that `error` came of.
    pub(super) fn in_causes(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |error| (*error).source());
        causes.find_map(|error| error.downcast_ref::<Self>().cloned())
    }
}

/// The policy, where there is one.
#[derive(Clone, Debug)]
pub(super) struct Guard(pub(super) Option<Arc<EndpointPolicy>>);

impl Guard {
    /// Judges a host that is an address: there is no lookup then.
    pub(super) fn check_literal(&self, to: &Uri) -> Result<(), ForbiddenAddress> {
        let (Some(policy), Some(host)) = (&self.0, to.host()) else { return Ok(()) };
        let text = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match text.parse() {
            Ok(address) if !policy.allows(address) => Err(ForbiddenAddress { host: host.to_owned(), address }),
            _ => Ok(()),
        }
    }

    /// Judges a name that a proxy will look up: it may choose any of the addresses, so each that is known here must be
    /// allowed. A name that nobody knows here is the proxy's to judge.
    pub(super) async fn check_behind_proxy(&self, resolver: &GaiResolver, to: &Uri) -> Result<(), ForbiddenAddress> {
        let (Some(policy), Some(host)) = (&self.0, to.host()) else { return Ok(()) };
        let Ok(name) = host.parse::<Name>() else { return Ok(()) };
        let Ok(mut found) = resolver.clone().call(name).await else { return Ok(()) };
        match found.find(|address| !policy.allows(address.ip())) {
            Some(address) => Err(ForbiddenAddress { host: host.to_owned(), address: address.ip() }),
            None => Ok(()),
        }
    }

    /// Leaves those of the addresses of `host` that may be called.
    fn filter(
        &self,
        host: &str,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Result<IntoIter<SocketAddr>, BoxError> {
        let Some(policy) = &self.0 else { return Ok(addresses.collect::<Vec<_>>().into_iter()) };
        let (allowed, refused): (Vec<_>, Vec<_>) = addresses.partition(|address| policy.allows(address.ip()));
        match refused.first() {
            Some(address) if allowed.is_empty() => {
                Err(ForbiddenAddress { host: host.to_owned(), address: address.ip() }.into())
            }
            _ => Ok(allowed.into_iter()),
        }
    }
}

/// A resolver that finds allowed addresses only.
#[derive(Clone, Debug)]
pub(super) struct Guarded<R> {
    resolver: R,
    guard: Guard,
}

impl<R> Guarded<R> {
    pub(super) fn new(resolver: R, guard: Guard) -> Self {
        Self { resolver, guard }
    }
}

impl<R> Service<Name> for Guarded<R>
where
    R: Service<Name, Response: Iterator<Item = SocketAddr>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<IntoIter<SocketAddr>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.resolver.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (host, guard) = (name.as_str().to_owned(), self.guard.clone());
        let found = self.resolver.call(name);
        Box::pin(async move { guard.filter(&host, found.await.map_err(Into::into)?) })
    }
}

/// Whether `host` is a number, or a name that leads to `address`. Fails where nobody says where it leads.
pub(super) async fn leads_to(resolver: &GaiResolver, host: &str, address: SocketAddr) -> Result<bool, BoxError> {
    // No name server takes a number from a server and gives it to another.
    if host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok() {
        return Ok(true);
    }
    let ip = address.ip().to_canonical();
    let mut found = resolver.clone().call(host.parse()?).await?;
    Ok(found.any(|found| found.ip().to_canonical() == ip))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::str::FromStr;

    use super::*;

    /// The answers of a name server, one after the other.
    struct Answers(Vec<&'static [&'static str]>);

    impl Service<Name> for Answers {
        type Response = IntoIter<SocketAddr>;
        type Error = Infallible;
        type Future = Ready<Result<IntoIter<SocketAddr>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            let answer: Vec<_> =
                self.0.remove(0).iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect();
            ready(Ok(answer.into_iter()))
        }
    }

    fn policy(exempt: &[&str]) -> Guard {
        let exempt = exempt.iter().map(|network| network.parse().unwrap()).collect();
        Guard(Some(Arc::new(EndpointPolicy::new(false, exempt))))
    }

    #[tokio::test]
    async fn a_name_is_judged_by_its_addresses_at_every_lookup() {
        let answers = Answers(vec![
            &["93.184.216.34"],
            &["10.0.0.1", "93.184.216.34", "127.0.0.1"],
            &["127.0.0.1"],
            &["::ffff:169.254.169.254", "fe80::1"],
            &[],
        ]);
        let mut resolver = Guarded::new(answers, policy(&[]));
        for expected in [
            Ok(vec!["93.184.216.34"]),
            Ok(vec!["93.184.216.34"]),
            Err("127.0.0.1"),
            Err("::ffff:169.254.169.254"),
            Ok(vec![]),
        ] {
            let found = resolver.call(Name::from_str("mcp.example").unwrap()).await;
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.map(|address| address.ip().to_string()).collect::<Vec<_>>(), expected);
                }
                (Err(error), Err(address)) => {
                    let forbidden = ForbiddenAddress::in_causes(&*error).unwrap();
                    assert_eq!((&*forbidden.host, forbidden.address), ("mcp.example", address.parse().unwrap()));
                    let says = format!(
                        "mcp.example has the address {address}, which may not be called; see --allow-endpoint-cidr"
                    );
                    assert_eq!(forbidden.to_string(), says, "no field of an object: webhooks and logins come here too");
                }
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn without_a_policy_every_address_is_found() {
        let mut resolver = Guarded::new(Answers(vec![&["127.0.0.1", "::1"]]), Guard(None));
        assert_eq!(resolver.call(Name::from_str("b").unwrap()).await.unwrap().count(), 2);
    }

    #[test]
    fn an_address_in_a_url_is_judged_without_a_lookup() {
        let guard = policy(&["127.0.0.0/8"]);
        for (url, allowed) in [
            ("https://127.0.0.1:1", true),
            ("https://[::ffff:127.0.0.1]:1", true),
            ("https://93.184.216.34", true),
            ("https://mcp.example", true),
            ("https://[::1]:1", false),
            ("https://169.254.169.254", false),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(guard.check_literal(&Uri::from_static(url)).is_ok(), allowed, "{url}");
        }
    }

    #[tokio::test]
    async fn an_address_that_a_name_does_not_lead_to_is_known() {
        for (host, address, named) in [
            ("localhost", "127.0.0.1:1", true),
            ("localhost", "127.0.0.2:1", false),
            ("localhost", "[::ffff:127.0.0.1]:1", true),
            ("127.0.0.1", "127.0.0.2:1", true),
            ("[::1]", "127.0.0.2:1", true),
        ] {
            let found = leads_to(&GaiResolver::new(), host, address.parse().unwrap()).await;
            assert_eq!(found.unwrap(), named, "{host} {address}");
        }
        assert!(leads_to(&GaiResolver::new(), "no-such-name.invalid", "127.0.0.1:1".parse().unwrap()).await.is_err());
    }
}
