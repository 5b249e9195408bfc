//! The providers behave as the other tests expect.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use portcullis_identity::{Provider, Tls};
use portcullis_pki::{Ca, CertificateParams, Usage};
use serde_json::{Value, json};

const AUDIENCE: &str = "http://weather.example/mcp";

/// The header or the claims of a JWT.
fn part(token: &str, index: usize) -> Value {
    let parts: Vec<_> = token.split('.').collect();
    assert_eq!(parts.len(), 3, "{token} is no JWT");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[index]).unwrap()).unwrap()
}

async fn check(mut provider: Provider, subject: &str) {
    let issuer = provider.issuer().to_owned();
    assert_eq!(provider.discovery().await.unwrap()["issuer"], json!(issuer));
    let token = provider.token(AUDIENCE).await.unwrap();
    let claims = part(&token, 1);
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!(issuer), &json!(subject)), "{claims}");
    assert!(claims["aud"] == json!(AUDIENCE) || claims["aud"] == json!([AUDIENCE]), "{claims}");

    provider.rotate_keys().await.unwrap();
    let after = provider.token(AUDIENCE).await.unwrap();
    assert_ne!(part(&token, 0)["kid"], part(&after, 0)["kid"]);
    assert_eq!(part(&after, 1)["iss"], json!(issuer), "the address stays");

    provider.stop().await.unwrap();
    assert!(provider.discovery().await.is_err(), "a stopped provider answers");
    provider.start_again().await.unwrap();
    assert_eq!(provider.discovery().await.unwrap()["issuer"], json!(issuer));
}

#[tokio::test]
async fn zitadels_example_gives_jwts_for_the_audience_asked_for() {
    check(Provider::zitadel().await.unwrap(), "sid1").await;
}

#[tokio::test]
async fn oidc_provider_gives_jwts_and_opaque_tokens() {
    let provider = Provider::oidc_provider().await.unwrap();
    assert!(!provider.opaque_token(AUDIENCE).await.unwrap().contains('.'));
    check(provider, "caller").await;
}

#[tokio::test]
async fn oidc_provider_speaks_https() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let (not_before, not_after) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24));
    let ca = Ca::generate("identity ca", not_before, not_after).unwrap();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "127.0.0.1",
            organizations: &[],
            dns_names: &[],
            ip_addresses: &[[127, 0, 0, 1].into()],
            not_before,
            not_after,
            usage: Usage::Server,
        })
        .unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, &pair.cert_pem).unwrap();
    std::fs::write(&key, &pair.key_pem).unwrap();
    let provider = Provider::oidc_provider_tls(Tls { certificate, key, ca_pem: ca.cert_pem().into() }).await.unwrap();
    assert!(provider.issuer().starts_with("https://127.0.0.1:"));
    check(provider, "caller").await;
}
