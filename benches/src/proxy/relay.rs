//! The least that anything between a client and a server adds: a relay that copies bytes and knows nothing of HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::webhooks::{CERTIFICATE, KEY};

/// Relays what comes to `listen` to `backend`, for ever; where there is a folder with a certificate, as a server behind TLS.
pub async fn serve(listen: SocketAddr, backend: SocketAddr, certificate: Option<&Path>) -> Result<()> {
    let acceptor = certificate.map(acceptor).transpose()?;
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => relay(acceptor.accept(client).await?, backend).await,
                None => relay(client, backend).await,
            }
        });
    }
}

async fn relay(mut client: impl AsyncRead + AsyncWrite + Unpin, backend: SocketAddr) -> std::io::Result<(u64, u64)> {
    let mut server = TcpStream::connect(backend).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await
}

fn acceptor(folder: &Path) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
