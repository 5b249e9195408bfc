//! An identity provider that publishes one key, and a token of it; it exchanges each for one more.

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
        let (token, other) = (token(&pair)?, token(&pair)?);
        let exchanged = json!({ "access_token": other, "token_type": "Bearer", "expires_in": 3600,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token" })
        .to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that breaks off gets no keys.
                let _ = answer(stream, &keys, &exchanged).await;
            }
        });
        Ok(Self { address, token })
    }

    /// Its token endpoint.
    pub fn token_url(&self) -> String {
        format!("http://{}/token", self.address)
    }

    /// The login that takes its tokens.
    pub fn oidc_config(&self) -> Value {
        json!({ "Issuer": ISSUER, "Audience": "bench", "JWKSURL": format!("http://{}/", self.address), "InsecureAllowHTTP": true })
    }
}

/// A GET has the keys for its answer, a POST of a form an exchanged token.
async fn answer(mut stream: TcpStream, keys: &str, exchanged: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    // The last member of the form is the client's id.
    let is_whole = |request: &[u8]| {
        let end: &[u8] = if request.starts_with(b"POST") { b"client_id=bench" } else { b"\r\n\r\n" };
        request.ends_with(end)
    };
    while !is_whole(&request) && stream.read_buf(&mut request).await? > 0 {}
    let body = if request.starts_with(b"POST") { exchanged } else { keys };
    let length = body.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
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
