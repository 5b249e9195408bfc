//! Logins, TLS, and what they say when they fail.

use std::fs;
use std::path::Path;

use mcp_http::client::ClientTls;
use mcp_middleware::{Secret, SecretSource};
use mcp_redis::{Redis, RedisConfig, RedisError, RedisSessions, SessionOptions};
use mcp_store::{Principal, SessionStore as _};
use portcullis_services::{RedisOptions, RedisServer, Tls};

use crate::{TTL, connect, connect_with, replica, server};

fn with_password(server: &RedisServer, password: SecretSource) -> Redis {
    connect_with(RedisConfig { password, ..RedisConfig::new(&server.address()) })
}

#[tokio::test]
async fn a_password_comes_from_the_environment_or_a_file() {
    let password = Some("hunter2".to_owned());
    let server = RedisServer::start(RedisOptions { password, ..RedisOptions::default() }).await.unwrap();
    with_password(&server, SecretSource::Given(Secret::new("hunter2"))).ping().await.unwrap();

    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "wr0ng\n").unwrap();
    let redis = with_password(&server, SecretSource::File(file.path().to_owned()));
    let error = redis.ping().await.unwrap_err();
    assert!(matches!(&error, RedisError::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
    assert!(!format!("{error:?}{error}{redis:?}").contains("wr0ng"));

    fs::write(file.path(), "hunter2\n").unwrap();
    crate::answers(&redis).await;
}

#[tokio::test]
async fn a_login_that_is_missing_is_named() {
    let password = Some("hunter2".to_owned());
    let server = RedisServer::start(RedisOptions { password, ..RedisOptions::default() }).await.unwrap();
    for password in [SecretSource::None, SecretSource::Given(Secret::new(""))] {
        let error = with_password(&server, password).ping().await.unwrap_err();
        assert!(matches!(&error, RedisError::Refused { code, .. } if code == "NOAUTH"), "{error:?}");
        assert!(error.to_string().contains(&server.address()), "{error}");
    }
    let error = with_password(&server, SecretSource::File("/nowhere/password".into())).ping().await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/password"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    for (content, problem) in [("", "is empty"), ("\n", "is blank")] {
        fs::write(file.path(), content).unwrap();
        let error = with_password(&server, SecretSource::File(file.path().to_owned())).ping().await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&file.path().display().to_string()) && error.contains(problem), "{error}");
    }
}

/// Redis quotes the arguments of a command that it does not know.
#[tokio::test]
async fn no_error_has_the_password_or_the_session_that_redis_quotes() {
    let unknown = &["AUTH", "EVALSHA"];
    let server = RedisServer::start(RedisOptions { unknown, ..RedisOptions::default() }).await.unwrap();
    let login =
        with_password(&server, SecretSource::Given(Secret::new("hunter2"))).ping().await.unwrap_err().to_string();
    assert!(login.contains("unknown command 'AUTH'") && !login.contains("hunter2"), "{login}");
    let (id, alice) = ("f50cc2bb-abb5-4eed-8862-2444029b90db", Principal::new("https://issuer.example", "alice"));
    let load = replica(&server).load(id, &alice).await.unwrap_err().to_string();
    assert!(load.contains("unknown command 'EVALSHA'") && !load.contains(id), "{load}");
}

#[tokio::test]
async fn a_password_that_redis_asks_for_later_is_sent() {
    let (server, file) = (server().await, tempfile::NamedTempFile::new().unwrap());
    let redis = with_password(&server, SecretSource::File(file.path().to_owned()));
    fs::write(file.path(), "later").unwrap();
    // Without one set, a login is refused.
    assert!(redis.ping().await.is_err());
    server.cli(&["CONFIG", "SET", "requirepass", "later"]).await.unwrap();
    crate::answers(&redis).await;
}

#[tokio::test]
async fn tls_trusts_the_private_authority_alone() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Tls::written_to(folder.path()).unwrap();
    let options = RedisOptions { tls: Some(tls.clone()), ..RedisOptions::default() };
    let server = RedisServer::start(options).await.unwrap();
    let over = |tls| connect_with(RedisConfig { tls, ..RedisConfig::new(&server.address()) });
    let trusting = |ca: &Path| over(Some(ClientTls { ca: Some(ca.to_owned()), ..ClientTls::default() }));

    trusting(&tls.ca).ping().await.unwrap();
    over(Some(ClientTls { insecure: true, ..ClientTls::default() })).ping().await.unwrap();
    let plain = over(None).ping().await.unwrap_err();
    assert_ne!(plain.kind(), "refused", "{plain}");

    let other = tempfile::tempdir().unwrap();
    let stranger = Tls::written_to(other.path()).unwrap().ca;
    let redis = trusting(&stranger);
    let error = redis.ping().await.unwrap_err();
    assert!(error.to_string().contains("TLS: invalid peer certificate"), "{error}");
    // The file is replaced, as kubelet does with that of a Secret.
    fs::copy(&tls.ca, &stranger).unwrap();
    crate::answers(&redis).await;

    let missing = trusting(Path::new("/nowhere/ca.crt")).ping().await.unwrap_err();
    assert!(missing.to_string().contains("/nowhere/ca.crt"), "{missing}");
}

#[tokio::test]
async fn the_database_is_the_one_of_the_number() {
    let server = server().await;
    let redis = connect_with(RedisConfig { database: 3, ..RedisConfig::new(&server.address()) });
    let sessions = RedisSessions::new(redis, SessionOptions::new(TTL)).unwrap();
    crate::sessions::open(&sessions, "a", "alice").await;
    assert_eq!(server.cli(&["-n", "3", "DBSIZE"]).await.unwrap(), "1");
}

#[tokio::test]
async fn a_setting_that_cannot_work_is_named() {
    let prefix = SessionOptions { key_prefix: "thv".to_owned(), ..SessionOptions::new(TTL) };
    let error = RedisSessions::new(connect("127.0.0.1:1"), prefix).unwrap_err();
    assert_eq!((error.field, &*error.fix), ("key_prefix", "write \"thv:\""));
    assert!(error.to_string().starts_with("key_prefix:"), "{error}");
}
