//! Calls to the listeners: the certificate that each shows, and its answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt as _;
use portcullis_pki::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Reading;
use crate::lookups::{is_external_name, port_of, ready};
use crate::snapshot::{Answer, Listed, Listener, Look, Reached, Served};

const CONNECT: Duration = Duration::from_secs(2);
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The beginning of an answer that is looked at.
const ANSWER: u64 = 4 * 1024;

/// The most pods, addresses of a name, and paths that are called.
const PODS: usize = 4;
const ADDRESSES: usize = 4;
const PATHS: usize = 16;

/// Calls to the places at which the webhooks are served, as far as they can be called from here.
pub(super) async fn listeners(reading: &Reading<'_>) -> Look<Listed<Listener>> {
    let (view, provider) = (reading.view, reading.provider);
    let installation = &view.subject.installation;
    let service = view.service().filter(|service| is_external_name(service)).and_then(|service| service.spec.as_ref());
    let mut targets: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    let mut more = false;
    if let Some(host) = service.and_then(|spec| spec.external_name.as_deref()) {
        // It stands for a host; the port is the one that the API server calls.
        let found = addresses(tokio::net::lookup_host((host, installation.service.port))).await;
        targets.push((format!("Service {} ({host})", installation.service.name), found));
    } else if view.snapshot.options.call_pods {
        let port = view.target_port();
        let pods: Vec<_> = view.operator_pods().into_iter().filter(|pod| ready(pod)).collect();
        more = pods.len() > PODS;
        for pod in pods.into_iter().take(PODS) {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
            let port = port.as_ref().and_then(|port| port_of(pod, port));
            let address = ip.zip(port).map(|(ip, port)| SocketAddr::new(ip, port));
            targets.push((format!("pod {}", pod.name_any()), Vec::from_iter(address)));
        }
    }
    let mut paths: Vec<String> = view.subject.paths().into_iter().map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    paths.truncate(PATHS);
    let name = installation.server_name();
    let calls = targets.into_iter().map(|(target, addresses)| {
        let (name, paths) = (&name, &paths);
        async move {
            let mut listener =
                Listener { target, address: None, reached: Reached::Unreachable("it has no address".to_owned()) };
            // A name may stand for several addresses, of which one answers.
            for address in addresses {
                listener.address = Some(address);
                listener.reached = call(Arc::clone(provider), address, name, paths).await;
                if matches!(listener.reached, Reached::Answered(_) | Reached::NoTls(_)) {
                    break;
                }
            }
            listener
        }
    });
    Look::Seen(Listed { items: join_all(calls).await, more })
}

/// The first addresses that a name resolves to; none when no resolver answers in time.
async fn addresses(lookup: impl Future<Output = std::io::Result<impl Iterator<Item = SocketAddr>>>) -> Vec<SocketAddr> {
    match timeout(CONNECT, lookup).await {
        Ok(Ok(found)) => found.take(ADDRESSES).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Accepts every certificate and keeps it, to be judged later: nothing secret is sent to the server.
#[derive(Debug)]
struct Curious {
    provider: Arc<CryptoProvider>,
    seen: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Curious {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(leaf.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    // The server proves nevertheless that it holds the key.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Calls the address as `server_name`, and asks for each of the paths.
async fn call(provider: Arc<CryptoProvider>, address: SocketAddr, server_name: &str, paths: &[String]) -> Reached {
    let tcp = match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Reached::Refused,
        Ok(Err(error)) => return Reached::Unreachable(error.to_string()),
        Err(_) => return Reached::Unreachable(format!("no answer within {} s", CONNECT.as_secs())),
    };
    let Ok(name) = ServerName::try_from(server_name.to_owned()) else {
        return Reached::NoTls(format!("'{server_name}' is no DNS name"));
    };
    let curious = Arc::new(Curious { provider: Arc::clone(&provider), seen: Mutex::default() });
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = match versions {
        Ok(builder) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&curious) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth(),
        Err(error) => return Reached::NoTls(error.to_string()),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    match timeout(HANDSHAKE, connector.connect(name.clone(), tcp)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Reached::NoTls(error.to_string()),
        Err(_) => return Reached::NoTls(format!("no handshake within {} s", HANDSHAKE.as_secs())),
    }
    let leaf = curious.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    let leaf = match leaf.map(|der| Certificate::from_der(&der)) {
        Some(Ok(leaf)) => leaf,
        Some(Err(error)) => return Reached::NoTls(error.to_string()),
        None => return Reached::NoTls("it showed no certificate".to_owned()),
    };
    let mut answers = Vec::new();
    for path in paths {
        let (status, body) = match timeout(HANDSHAKE, get(&connector, address, &name, server_name, path)).await {
            Ok(Ok((status, body))) => (status, body),
            Ok(Err(error)) => (Err(error.to_string()), String::new()),
            Err(_) => (Err(format!("no answer within {} s", HANDSHAKE.as_secs())), String::new()),
        };
        answers.push(Answer { path: path.clone(), status, body });
    }
    Reached::Answered(Box::new(Served { leaf, answers }))
}

/// Status and the beginning of the body.
async fn get(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &ServerName<'static>,
    host: &str,
    path: &str,
) -> std::io::Result<(Result<u16, String>, String)> {
    let tcp = TcpStream::connect(address).await?;
    let mut stream = connector.connect(name.clone(), tcp).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // A peer that closes without saying so in TLS has answered nevertheless.
    let read = (&mut stream).take(ANSWER).read_to_end(&mut answer).await;
    if answer.is_empty() {
        read?;
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| "it does not speak HTTP/1.1".to_owned()), body.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_without_an_answer_is_not_waited_for() {
        let never = std::future::pending::<std::io::Result<std::iter::Empty<_>>>();
        assert_eq!(timeout(CONNECT * 2, addresses(never)).await, Ok(Vec::new()));
    }
}
