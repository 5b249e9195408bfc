//! Damage to the Secrets while the operator serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http_body_util::Full;
use hyper::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use portcullis::certificates::{Automatic, ServingCertificate, probe};
use portcullis::server::{Incoming, Limits, Server};
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use portcullis_testing::wait_until;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::fixture::{PATIENCE, Place};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn authority(from: SignedDuration, to: SignedDuration) -> Ca {
    Ca::generate("somebody's ca", Timestamp::now() + from, Timestamp::now() + to).unwrap()
}

fn pair_of(ca: &Ca, dns_name: String, from: SignedDuration, to: SignedDuration) -> Pair {
    ca.issue(&CertificateParams {
        common_name: "test",
        organizations: &[],
        dns_names: &[dns_name],
        ip_addresses: &[],
        not_before: Timestamp::now() + from,
        not_after: Timestamp::now() + to,
        usage: Usage::Server,
    })
    .unwrap()
}

/// Certificate and key under the CA that is stored.
async fn issued(place: &Place, dns_name: String, from: SignedDuration, to: SignedDuration) -> (String, String) {
    let data = place.read(&place.ca_secret()).await.unwrap().data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let ca = Ca::from_pem(&text("ca.crt"), &text("ca.key")).unwrap();
    let pair = pair_of(&ca, dns_name, from, to);
    (pair.cert_pem, pair.key_pem)
}

pub(crate) type Damage = fn(&Place) -> BoxFuture<'_, ()>;

/// The part of the stored state that survives a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Everything: what was damaged follows from the rest.
    All,
    /// The CA.
    Ca,
    /// Nothing.
    Nothing,
}
use Left::{All, Ca as OnlyCa, Nothing};

/// A damage that is one value of one of the Secrets, made from what is stored now.
macro_rules! damage {
    (|$p:ident| $body:expr) => {
        |$p| Box::pin(async move { $body })
    };
}

/// The first half.
fn cut(pem: &str) -> String {
    pem[..pem.len() / 2].to_owned()
}

async fn pair_under_stored(p: &Place, from: SignedDuration, to: SignedDuration, name: String) {
    let (cert, key) = issued(p, name, from, to).await;
    p.overwrite(&p.secret(), &[("tls.crt", &cert), ("tls.key", &key)]).await;
}

async fn other_ca(p: &Place, from: SignedDuration, to: SignedDuration) {
    let ca = authority(from, to);
    p.overwrite(&p.ca_secret(), &[("ca.crt", ca.cert_pem()), ("ca.key", ca.key_pem())]).await;
}

/// Each of the ways in which a user can damage a Secret, and what is left.
pub(crate) fn damages() -> Vec<(&'static str, Left, Damage)> {
    vec![
        // The Secret with the pair.
        ("an empty key", OnlyCa, damage!(|p| p.overwrite(&p.secret(), &[("tls.key", "")]).await)),
        (
            "a truncated key",
            OnlyCa,
            damage!(|p| {
                let key = cut(&p.stored().await.unwrap().key_pem);
                p.overwrite(&p.secret(), &[("tls.key", &key)]).await;
            }),
        ),
        (
            "a key of another pair",
            OnlyCa,
            damage!(|p| {
                let (_, key) = issued(p, p.server_name(), -DAY, DAY * 300).await;
                p.overwrite(&p.secret(), &[("tls.key", &key)]).await;
            }),
        ),
        ("an empty certificate", OnlyCa, damage!(|p| p.overwrite(&p.secret(), &[("tls.crt", "")]).await)),
        (
            "a truncated certificate",
            OnlyCa,
            damage!(|p| {
                let cert = cut(&p.stored().await.unwrap().cert_pem);
                p.overwrite(&p.secret(), &[("tls.crt", &cert)]).await;
            }),
        ),
        ("an expired pair", OnlyCa, damage!(|p| pair_under_stored(p, DAY * -3, DAY * -2, p.server_name()).await)),
        (
            "a pair that is not valid yet",
            OnlyCa,
            damage!(|p| pair_under_stored(p, DAY, DAY * 90, p.server_name()).await),
        ),
        (
            "a pair for another name",
            OnlyCa,
            damage!(|p| {
                pair_under_stored(p, -DAY, DAY * 300, "elsewhere.svc".to_owned()).await;
            }),
        ),
        (
            "a pair that is about to end",
            OnlyCa,
            damage!(|p| pair_under_stored(p, -DAY, DAY * 29, p.server_name()).await),
        ),
        (
            "a pair of a foreign CA, with that CA",
            OnlyCa,
            damage!(|p| {
                let ca = authority(-DAY, DAY * 900);
                let pair = pair_of(&ca, p.server_name(), -DAY, DAY * 300);
                let all = [("tls.crt", &*pair.cert_pem), ("tls.key", &*pair.key_pem), ("ca.crt", ca.cert_pem())];
                p.overwrite(&p.secret(), &all).await;
            }),
        ),
        ("no Secret with the pair", OnlyCa, damage!(|p| p.delete(&p.secret()).await)),
        ("an empty bundle", All, damage!(|p| p.overwrite(&p.secret(), &[("ca.crt", "")]).await)),
        (
            "a truncated bundle",
            All,
            damage!(|p| {
                let bundle = cut(&p.stored().await.unwrap().ca_pem);
                p.overwrite(&p.secret(), &[("ca.crt", &bundle)]).await;
            }),
        ),
        (
            "a foreign CA for a bundle",
            All,
            damage!(|p| {
                p.overwrite(&p.secret(), &[("ca.crt", authority(-DAY, DAY * 900).cert_pem())]).await;
            }),
        ),
        (
            "a foreign CA beside ours",
            All,
            damage!(|p| {
                let both = p.stored().await.unwrap().ca_pem + authority(-DAY, DAY * 900).cert_pem();
                p.overwrite(&p.secret(), &[("ca.crt", &both)]).await;
            }),
        ),
        // The Secret with the CA.
        ("no Secret with the CA", Nothing, damage!(|p| p.delete(&p.ca_secret()).await)),
        (
            "neither Secret",
            Nothing,
            damage!(|p| {
                p.delete(&p.ca_secret()).await;
                p.delete(&p.secret()).await;
            }),
        ),
        ("an empty CA key", Nothing, damage!(|p| p.overwrite(&p.ca_secret(), &[("ca.key", "")]).await)),
        (
            "the key of another CA",
            Nothing,
            damage!(|p| {
                p.overwrite(&p.ca_secret(), &[("ca.key", authority(-DAY, DAY * 900).key_pem())]).await;
            }),
        ),
        ("an empty CA", Nothing, damage!(|p| p.overwrite(&p.ca_secret(), &[("ca.crt", "")]).await)),
        (
            "a truncated CA",
            Nothing,
            damage!(|p| {
                let ca = cut(&p.stored().await.unwrap().ca_pem);
                p.overwrite(&p.ca_secret(), &[("ca.crt", &ca)]).await;
            }),
        ),
        ("a foreign CA with its key", Nothing, damage!(|p| other_ca(p, -DAY, DAY * 900).await)),
        ("an expired CA", Nothing, damage!(|p| other_ca(p, DAY * -3, DAY * -2).await)),
        ("a CA that is about to end", Nothing, damage!(|p| other_ca(p, -DAY, DAY * 29).await)),
        ("a CA that is not valid yet", Nothing, damage!(|p| other_ca(p, DAY, DAY * 900).await)),
        (
            "a foreign CA beside the CA",
            Nothing,
            damage!(|p| {
                let both = p.stored().await.unwrap().ca_pem + authority(-DAY, DAY * 900).cert_pem();
                p.overwrite(&p.ca_secret(), &[("ca.crt", &both)]).await;
            }),
        ),
        ("half a next CA", All, damage!(|p| p.overwrite(&p.ca_secret(), &[("next.crt", "garbage")]).await)),
        (
            "an earlier CA that does not read",
            All,
            damage!(|p| p.overwrite(&p.ca_secret(), &[("previous.crt", "xx")]).await),
        ),
    ]
}

/// A listener under automatic certificates, as the operator's user.
pub(crate) struct Serving {
    address: SocketAddr,
    pub(crate) stop: CancellationToken,
}

impl Serving {
    /// The certificate that is served to a caller who trusts what is stored, as DER.
    pub(crate) async fn leaf(&self, place: &Place) -> Option<Vec<u8>> {
        let mut roots = RootCertStore::empty();
        let stored = place.stored().await?.ca_pem;
        CertificateDer::pem_slice_iter(stored.as_bytes()).try_for_each(|der| roots.add(der.ok()?).ok())?;
        let config = ClientConfig::builder_with_provider(place.source().provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (name, stream) = (place.server_name().try_into().unwrap(), TcpStream::connect(self.address).await.ok()?);
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        Some(stream.get_ref().1.peer_certificates()?[0].to_vec())
    }
}

pub(crate) async fn serve(place: &Place) -> Serving {
    serve_from(place, place.quick_source()).await
}

pub(crate) async fn serve_from(place: &Place, source: Automatic) -> Serving {
    place.install(&["a"]).await;
    let (stop, configurations) = (CancellationToken::new(), place.configurations(&["a"]));
    let material = source.ensure().await.unwrap();
    let tls = Arc::new(ArcSwap::from_pointee(material.tls_config(&source.provider).unwrap()));
    let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let hello = |_: Request<Incoming>| async { Response::new(Full::new(Bytes::new())) };
    let bundle = source.bundle(&place.name, &material);
    let (client, stopped, ready) = (place.user.client.clone(), stop.clone(), bundle.clone());
    let looked_after = configurations.clone();
    tokio::spawn(async move {
        tokio::join!(
            server.serve_tls(Arc::clone(&tls), Arc::new(hello), stopped.clone()),
            bundle.maintain(&client, &looked_after, &stopped),
            source.maintain(material, &tls, &bundle, &stopped),
        )
    });
    tokio::time::timeout(PATIENCE, ready.wait_until_published(&configurations, |_| {})).await.unwrap();
    Serving { address, stop }
}

/// A handshake under the bundle that is published. The API server learns of a new one by its watch: so a handshake that
/// fails counts only when the bundle is still the same afterwards.
pub(crate) async fn call(place: &Place, serving: &Serving) -> Result<(), String> {
    let published = || async { place.bundles().await.swap_remove(0).1.unwrap() };
    let mut bundle = published().await;
    loop {
        match probe(place.source().provider, serving.address, &place.server_name(), &bundle).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                let next = published().await;
                if next == bundle {
                    return Err(error.to_string());
                }
                bundle = next;
            }
        }
    }
}

async fn is_repaired(
    place: &Place,
    serving: &Serving,
    before: &ServingCertificate,
    left: Left,
) -> Option<ServingCertificate> {
    let stored = place.stored().await.filter(|stored| match left {
        All => stored == before,
        OnlyCa => stored.ca_pem == before.ca_pem && stored.cert_pem != before.cert_pem,
        Nothing => stored.ca_pem != before.ca_pem && stored.cert_pem != before.cert_pem,
    })?;
    let ca: Vec<_> = place.read(&place.ca_secret()).await?.data?.into_keys().collect();
    let sound = ca == ["ca.crt", "ca.key"] && stored.tls_config(&place.source().provider).is_ok();
    let published = place.bundles().await == [("a".to_owned(), Some(stored.ca_pem.clone()))];
    let served = probe(place.source().provider, serving.address, &place.server_name(), &stored.ca_pem).await.is_ok();
    let mark = place.cluster.audit().mark();
    (sound && published && served && place.source().ensure().await.ok()? == stored && place.writes(mark).await == 0)
        .then_some(stored)
}

async fn survives(what: &str, left: Left, damage: Damage) {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let before = place.stored().await.unwrap();
    damage(&place).await;
    let (place, serving, before) = (&place, &serving, &before);
    wait_until(&format!("{what} to be repaired"), PATIENCE, || async move {
        call(place, serving).await.unwrap_or_else(|error| panic!("{what}: a call failed meanwhile: {error}"));
        is_repaired(place, serving, before, left).await
    })
    .await;
    serving.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_secrets_are_repaired_while_the_listener_answers() {
    // A few at a time: each has a namespace, a user and a listener of its own.
    for some in damages().chunks(14) {
        join_all(some.iter().map(|(what, left, damage)| survives(what, *left, *damage))).await;
    }
}

// D3: a good pair that another replica puts there is served, without a write.
#[tokio::test]
async fn a_new_pair_in_the_secret_is_served_without_closing_the_port() {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let mark = place.cluster.audit().mark();
    let (cert, key) = issued(&place, format!("*.{}.svc", place.name), -DAY, DAY * 200).await;
    place.overwrite(&place.secret(), &[("tls.crt", &cert), ("tls.key", &key)]).await;
    let served = || async {
        // Only the new pair names this.
        let other = format!("other.{}.svc", place.name);
        let ca = place.stored().await?.ca_pem;
        probe(place.source().provider, serving.address, &other, &ca).await.ok()
    };
    wait_until("the new pair to be served", PATIENCE, served).await;
    assert_eq!(place.writes(mark).await, 0);
    serving.stop.cancel();
}

#[tokio::test]
async fn a_probe_says_what_is_wrong_and_does_not_wait_for_ever() {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let provider = || place.source().provider;
    let ca = place.stored().await.unwrap().ca_pem;
    let foreign = authority(-DAY, DAY);
    let silent = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let cases = [
        (serving.address, place.server_name(), foreign.cert_pem(), "UnknownIssuer"),
        (serving.address, "other.svc".to_owned(), &ca, "not valid for name"),
        (serving.address, "not a name".to_owned(), &ca, "'not a name' is not a DNS name"),
        (silent.local_addr().unwrap(), place.server_name(), &ca, "did not answer within 5 s"),
    ];
    for (address, name, ca, wanted) in cases {
        let probed = probe(provider(), address, &name, ca);
        let error = tokio::time::timeout(PATIENCE, probed).await.unwrap().unwrap_err().to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    serving.stop.cancel();
}
