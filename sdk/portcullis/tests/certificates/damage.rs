//! Damage to the Secrets while the operator serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http_body_util::Full;
use hyper::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use portcullis::certificates::{Bundle, Material, probe};
use portcullis::server::{Limits, RequestBody, Server};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::wait_until;
use tokio_util::sync::CancellationToken;

use crate::fixture::{PATIENCE, Place};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn authority(from: SignedDuration, to: SignedDuration) -> Ca {
    Ca::generate("somebody's ca", Timestamp::now() + from, Timestamp::now() + to).unwrap()
}

/// Certificate and key under the CA that is stored.
async fn issued(place: &Place, dns_name: String, days: i64) -> (String, String) {
    let data = place.read(&place.ca_secret()).await.unwrap().data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let ca = Ca::from_pem(&text("ca.crt"), &text("ca.key")).unwrap();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "test",
            organizations: &[],
            dns_names: &[dns_name],
            ip_addresses: &[],
            not_before: Timestamp::now() - SignedDuration::from_mins(5),
            not_after: Timestamp::now() + DAY * i32::try_from(days).unwrap(),
            usage: Usage::Server,
        })
        .unwrap();
    (pair.cert_pem, pair.key_pem)
}

type Damage = fn(&Place) -> BoxFuture<'_, ()>;

/// What is done, and whether the CA outlives it.
fn damages() -> Vec<(&'static str, bool, Damage)> {
    vec![
        ("an empty key", true, |p| Box::pin(async { p.overwrite(&p.secret(), &[("tls.key", "")]).await })),
        ("a key of another pair", true, |p| {
            Box::pin(async {
                let (_, key) = issued(p, p.server_name(), 300).await;
                p.overwrite(&p.secret(), &[("tls.key", &key)]).await;
            })
        }),
        ("a certificate that does not read", true, |p| {
            Box::pin(async { p.overwrite(&p.secret(), &[("tls.crt", "-----BEGIN CERTIFICATE-----\nxx\n")]).await })
        }),
        ("a foreign CA", true, |p| {
            Box::pin(async {
                p.overwrite(&p.secret(), &[("ca.crt", authority(-DAY, DAY * 900).cert_pem())]).await;
            })
        }),
        ("a foreign CA beside ours", true, |p| {
            Box::pin(async {
                let both = p.stored().await.unwrap().ca_pem + authority(-DAY, DAY * 900).cert_pem();
                p.overwrite(&p.secret(), &[("ca.crt", &both)]).await;
            })
        }),
        ("no Secret with the pair", true, |p| Box::pin(async { p.delete(&p.secret()).await })),
        ("a pair for another name", true, |p| {
            Box::pin(async {
                let (cert, key) = issued(p, "elsewhere.svc".to_owned(), 300).await;
                p.overwrite(&p.secret(), &[("tls.crt", &cert), ("tls.key", &key)]).await;
            })
        }),
        ("a pair that is about to end", true, |p| {
            Box::pin(async {
                let (cert, key) = issued(p, p.server_name(), 29).await;
                p.overwrite(&p.secret(), &[("tls.crt", &cert), ("tls.key", &key)]).await;
            })
        }),
        ("no Secret with the CA", false, |p| Box::pin(async { p.delete(&p.ca_secret()).await })),
        ("neither Secret", false, |p| {
            Box::pin(async {
                p.delete(&p.ca_secret()).await;
                p.delete(&p.secret()).await;
            })
        }),
        ("an empty CA key", false, |p| Box::pin(async { p.overwrite(&p.ca_secret(), &[("ca.key", "")]).await })),
        ("a CA that does not read", false, |p| {
            Box::pin(async { p.overwrite(&p.ca_secret(), &[("ca.crt", "garbage")]).await })
        }),
        ("a CA that is about to end", false, |p| {
            Box::pin(async {
                let ca = authority(-DAY, DAY * 29);
                p.overwrite(&p.ca_secret(), &[("ca.crt", ca.cert_pem()), ("ca.key", ca.key_pem())]).await;
            })
        }),
        ("a CA that is not valid yet", false, |p| {
            Box::pin(async {
                let ca = authority(DAY, DAY * 900);
                p.overwrite(&p.ca_secret(), &[("ca.crt", ca.cert_pem()), ("ca.key", ca.key_pem())]).await;
            })
        }),
        ("a foreign CA beside the CA", false, |p| {
            Box::pin(async {
                let both = p.stored().await.unwrap().ca_pem + authority(-DAY, DAY * 900).cert_pem();
                p.overwrite(&p.ca_secret(), &[("ca.crt", &both)]).await;
            })
        }),
    ]
}

/// A listener under automatic certificates, as the operator's user.
struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
}

async fn serve(place: &Place) -> Serving {
    place.install(&["a"]).await;
    let (stop, configurations) = (CancellationToken::new(), place.configurations(&["a"]));
    let source = place.source().published_in(configurations.clone());
    let material = source.ensure().await.unwrap();
    let tls = Arc::new(ArcSwap::from_pointee(source.tls_config(&material).unwrap()));
    let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Limits::default()).await.unwrap();
    let address = server.local_addr().unwrap();
    let hello = |_: Request<RequestBody>| async { Response::new(Full::new(Bytes::new())) };
    let bundle = Bundle::new(&place.name, &material.ca_pem);
    let (client, stopped, ready) = (place.user.client.clone(), stop.clone(), bundle.clone());
    let looked_after = configurations.clone();
    tokio::spawn(async move {
        tokio::join!(
            server.serve_tls(Arc::clone(&tls), Arc::new(hello), stopped.clone()),
            bundle.maintain(&client, &looked_after, &stopped),
            source.maintain(material, &tls, &bundle, &stopped),
        )
    });
    tokio::time::timeout(PATIENCE, ready.published(&configurations, |_| {})).await.unwrap();
    Serving { address, stop }
}

/// A handshake under the bundle that is published. The API server learns of a new one by its watch: so a handshake that
/// fails counts only when the bundle is still the same afterwards.
async fn call(place: &Place, serving: &Serving) -> Result<(), String> {
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

async fn is_repaired(place: &Place, serving: &Serving, before: &Material) -> Option<Material> {
    let stored = place.stored().await.filter(|stored| stored != before)?;
    let sound = place.source().tls_config(&stored).is_ok();
    let published = place.bundles().await == [("a".to_owned(), Some(stored.ca_pem.clone()))];
    let served = probe(place.source().provider, serving.address, &place.server_name(), &stored.ca_pem).await.is_ok();
    let mark = place.cluster.audit().mark();
    (sound && published && served && place.source().ensure().await.ok()? == stored && place.writes(mark).await == 0)
        .then_some(stored)
}

async fn survives(what: &str, keeps_ca: bool, damage: Damage) {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let before = place.stored().await.unwrap();
    damage(&place).await;
    let repaired = {
        let (place, serving, before) = (&place, &serving, &before);
        wait_until(&format!("{what} to be repaired"), PATIENCE, || async move {
            call(place, serving).await.unwrap_or_else(|error| panic!("{what}: a call failed meanwhile: {error}"));
            is_repaired(place, serving, before).await
        })
        .await
    };
    assert_eq!(repaired.ca_pem == before.ca_pem, keeps_ca, "{what}");
    // What was taken for the pair that served before is not.
    assert_ne!(repaired.cert_pem, before.cert_pem, "{what}");
    serving.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_secrets_are_repaired_while_the_listener_goes_on_answering() {
    // A few at a time: each has a namespace, a user and a listener of its own.
    for some in damages().chunks(5) {
        join_all(some.iter().map(|(what, keeps_ca, damage)| survives(what, *keeps_ca, *damage))).await;
    }
}

// D3: a good pair that somebody else puts there (another replica) is served, without a write.
#[tokio::test]
async fn a_new_pair_in_the_secret_is_served_without_closing_the_port() {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let mark = place.cluster.audit().mark();
    let (cert, key) = issued(&place, format!("*.{}.svc", place.name), 200).await;
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
        let error = tokio::time::timeout(Duration::from_secs(20), probed).await.unwrap().unwrap_err().to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    serving.stop.cancel();
}
