//! An identity provider that publishes one key, and a token of it.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ISSUER: &str = "https://issuer.example";

/// The provider; it runs as long as the runtime does.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    /// A token for an hour.
    pub token: String,
}

impl Provider {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| anyhow!("no key pair"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let key = json!({ "kty": "EC", "crv": "P-256", "kid": "bench", "x": encode(x), "y": encode(y) });
        let keys = json!({ "keys": [key] }).to_string();
        let token = token(&pair)?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that breaks off gets no keys.
                let _ = answer(stream, &keys).await;
            }
        });
        Ok(Self { address, token })
    }

    /// The login that takes its tokens.
    pub fn oidc_config(&self) -> Value {
        json!({ "Issuer": ISSUER, "Audience": "bench", "JWKSURL": format!("http://{}/", self.address), "InsecureAllowHTTP": true })
    }
}

async fn answer(mut stream: TcpStream, keys: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await? > 0 {}
    let length = keys.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{keys}");
    stream.write_all(answer.as_bytes()).await
}

/// About as long as real ones are.
fn token(pair: &EcdsaKeyPair) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "bench" });
    let claims = json!({ "iss": ISSUER, "sub": "alice", "aud": ["bench"], "iat": now, "exp": now + 3600, "scope": "openid profile email",
        "name": "Alice Example", "email": "alice@example.com", "groups": vec!["a-group-with-a-long-name"; 20] });
    let signed = [header, claims].map(|part| encode(part.to_string().as_bytes())).join(".");
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| anyhow!("cannot sign"))?;
    Ok(format!("{signed}.{}", encode(signature.as_ref())))
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
