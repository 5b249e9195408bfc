//! `--public-url`: a tunnel ends TLS and hands plain HTTP on.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::free_address;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::fixture::{cluster, configurations, entities, judged, start};
use super::process::ENTITIES;

/// Ends TLS for `localhost`, and hands what is in it on to this port. Ends with the test.
async fn tunnel(to: u16) -> (SocketAddr, String) {
    let (from, until) =
        (Timestamp::now() - SignedDuration::from_hours(1), Timestamp::now() + SignedDuration::from_hours(1));
    let ca = Ca::generate("tunnel", from, until).unwrap();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "localhost",
            organizations: &[],
            dns_names: &["localhost".to_owned()],
            ip_addresses: &[],
            not_before: from,
            not_after: until,
            usage: Usage::Server,
        })
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = portcullis::server::tls_config(provider, pair.cert_pem.as_bytes(), pair.key_pem.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = TcpStream::connect(("127.0.0.1", to)).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    (address, ca.cert_pem().to_owned())
}

// K6
#[tokio::test]
async fn a_tunnel_that_ends_tls_is_called_and_its_certificate_checked() {
    let cluster = cluster().await;
    let free = free_address().port();
    let (address, ca) = tunnel(free).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, ca).unwrap();
    let team = cluster.namespace("team").await;
    let (url, port) = (format!("https://localhost:{}", address.port()), free.to_string());
    let arguments = ["--public-url", &url, "--port", &port, "--only-namespace", &team];

    // The API server's own roots know nothing of this CA.
    let error = start(cluster, ENTITIES, "tunnel", &arguments).fails().await;
    assert!(error.contains(&url) && error.contains("certificate signed by unknown authority"), "{error}");
    assert_eq!(configurations(cluster, "tunnel").await, [""; 0]);

    let trusting = [&arguments[..], &["--ca-file", file.to_str().unwrap()]].concat();
    let mut dev = start(cluster, ENTITIES, "tunnel", &trusting);
    dev.open().await;
    judged(&entities(cluster, &team), true).await;
    assert!(
        dev.said().contains(&format!("{url} (as --public-url says), listening on 127.0.0.1:{port}")),
        "{}",
        dev.said()
    );
    dev.end("-TERM").await;
    assert_eq!(configurations(cluster, "tunnel").await, [""; 0]);
}
