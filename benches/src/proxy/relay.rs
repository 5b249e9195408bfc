//! The least that anything between a client and a server adds: a relay that copies bytes and knows nothing of HTTP.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Relays what comes to `listen` to `backend`, for ever.
pub async fn serve(listen: SocketAddr, backend: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (mut client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut server = TcpStream::connect(backend).await?;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}
