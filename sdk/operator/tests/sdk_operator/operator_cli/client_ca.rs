//! `--client-ca`: callers of admission show a certificate, or are not answered.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use portcullis_testing::{ControlPlane, wait_until};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::process::{PATIENCE, Running, output_of};

/// The example with a rule, a default and a conversion.
pub(crate) const SHOP: &str = "shop_operator";

pub(crate) async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output_of(SHOP, &[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// An authority, and the certificate of somebody.
fn somebody() -> (Ca, Pair) {
    let (from, to) =
        (Timestamp::now() - SignedDuration::from_mins(5), Timestamp::now() + SignedDuration::from_hours(1));
    let ca = Ca::generate("callers", from, to).unwrap();
    let params = CertificateParams {
        common_name: "somebody",
        organizations: &[],
        dns_names: &[],
        ip_addresses: &[],
        not_before: from,
        not_after: to,
        usage: Usage::Client,
    };
    let pair = ca.issue(&params).unwrap();
    (ca, pair)
}

/// The webhooks, as whoever reaches their port sees them.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) server_name: String,
    pub(crate) ca_pem: Vec<u8>,
}

impl Listener {
    /// The status of a review that is none; or why there is no answer.
    async fn call(&self, path: &str, caller: Option<&Pair>) -> std::io::Result<u16> {
        self.announce(path, 2, caller).await
    }

    /// The same, and its body is said to be this long.
    pub(crate) async fn announce(&self, path: &str, length: usize, caller: Option<&Pair>) -> std::io::Result<u16> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.ca_pem).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match caller {
            None => config.with_no_client_auth(),
            Some(Pair { cert_pem, key_pem }) => {
                let chain = vec![CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap()).unwrap()
            }
        };
        let name = ServerName::try_from(self.server_name.clone()).unwrap();
        let stream = TcpStream::connect(self.address).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.split(' ').nth(1).unwrap().parse().unwrap())
    }
}

#[tokio::test]
async fn who_shows_no_certificate_of_the_api_servers_authority_has_no_review_answered_but_conversions() {
    let cluster = ControlPlane::builder().webhook_client_certificate().start().await.unwrap();
    let namespace = cluster.namespace("shop").await;
    let user = cluster.user_of(&generate(&["rbac", "--namespace", &namespace]).await).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::copy(cluster.webhook_client_ca(), &file).unwrap();
    let (kubeconfig, client_ca) = (user.kubeconfig.to_str().unwrap(), file.to_str().unwrap());
    let running =
        Running::run(SHOP, &["--kubeconfig", kubeconfig, "--namespace", &namespace, "--client-ca", client_ca]);
    let address = running.webhooks().await;
    let place = ["--namespace", &namespace, "--service-port", &address.port().to_string()];
    cluster.route_service(&namespace, "shop-webhook").await;
    cluster.apply(&generate(&[&["crds"], &place[..]].concat()).await).await;
    let configurations = generate(&[&["webhooks"], &place[..]].concat()).await;
    cluster.apply(&configurations).await;
    running.ready().await;

    // The API server shows its certificate to both kinds of webhooks, and has none for conversions.
    let orders = |version: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("doctor.example", version, "Order");
        Api::namespaced_with(cluster.admin(), &namespace, &ApiResource::from_gvk_with_plural(&kind, "orders"))
    };
    let create = async |name: &str, glasses: Option<u32>| {
        let order = json!({
            "apiVersion": "doctor.example/v2", "kind": "Order", "metadata": { "name": name },
            "spec": { "beer": "Dark", "glasses": glasses },
        });
        orders("v2").create(&PostParams::default(), &serde_json::from_value(order).unwrap()).await
    };
    let refused = || async {
        let refused = create("bad", Some(10)).await.err()?;
        refused.to_string().contains("that is too much").then_some(())
    };
    wait_until("the rule to be asked", PATIENCE, refused).await;
    assert_eq!(create("good", None).await.unwrap().data["spec"]["glasses"], 1);
    assert_eq!(orders("v1").get("good").await.unwrap().data["spec"], json!({ "beer": "Dark" }));

    // Whoever else reaches the port.
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &namespace);
    let ca_pem = secrets.get("shop-webhook-tls").await.unwrap().data.unwrap().remove("ca.crt").unwrap().0;
    let listener = Listener { address, server_name: format!("shop-webhook.{namespace}.svc"), ca_pem };
    let path = |kind: &str| {
        let configuration = configurations.iter().find(|one| one["kind"] == kind).unwrap();
        configuration["webhooks"][0]["clientConfig"]["service"]["path"].as_str().unwrap().to_owned()
    };
    let (judged, filled) = (path("ValidatingWebhookConfiguration"), path("MutatingWebhookConfiguration"));
    for path in [&judged, &filled] {
        assert_eq!(listener.call(path, None).await.unwrap(), 401, "{path}");
        let counted = format!("portcullis_webhook_rejected_total{{webhook=\"{path}\",reason=\"unauthenticated\"}} 1");
        let metrics = running.health("/metrics").await.1;
        assert!(metrics.contains(&counted), "{metrics}");
    }
    running.says("a call without a client certificate is refused (401)").await;
    assert_eq!(listener.call("/convert/orders", None).await.unwrap(), 400, "it is read, and is no review");
    let ((first, one), (second, other)) = (somebody(), somebody());
    assert!(listener.call(&judged, Some(&one)).await.is_err());
    running.says("refused a client: its certificate is not trusted").await;

    // A file that changes is taken up, unless it is of no use.
    let answers = async |caller: &Pair| listener.call(&judged, Some(caller)).await.ok();
    for (ca, caller) in [(&first, &one), (&second, &other)] {
        std::fs::write(&file, ca.cert_pem()).unwrap();
        let admitted = || async { (answers(caller).await == Some(400)).then_some(()) };
        wait_until("the new authority to be in force", PATIENCE, admitted).await;
    }
    assert_eq!(answers(&one).await, None, "its authority is out of the file");
    std::fs::write(&file, "garbage").unwrap();
    running.says("cannot reload the client CAs: the previous ones stay in force").await;
    assert_eq!((answers(&other).await, answers(&one).await), (Some(400), None));
    cluster.stop().await;
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_used_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let path = file.to_str().unwrap();
    let kubeconfig = ControlPlane::shared().await.kubeconfig_path();
    let start = ["run", "--log", "off", "--namespace", "default", "--kubeconfig", kubeconfig.to_str().unwrap()];
    for (text, problem) in [(None, "No such file"), (Some("garbage"), "it holds nothing that could be trusted")] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let output = output_of(SHOP, &[&start[..], &["--client-ca", path]].concat()).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("error: cannot use --client-ca {path}: {problem}")), "{said}");
    }
}

#[tokio::test]
async fn generated_manifests_mount_the_authorities_where_the_operator_reads_them() {
    let arguments = ["operator", "--image", "shop:1", "--client-ca-config-map", "callers"];
    let manifests = generate(&arguments).await;
    let deployment = manifests.iter().find(|one| one["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let args = pod["containers"][0]["args"].as_array().unwrap();
    let folder = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert!(args.contains(&json!(format!("--client-ca={folder}/ca.crt"))), "{args:?}");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "callers");
    let helm = ["generate", "operator", "--client-ca-config-map", "callers", "--format", "helm", "--out", "/nowhere"];
    let said = String::from_utf8(output_of(SHOP, &helm).await.stderr).unwrap();
    assert!(said.contains("--client-ca-config-map is not for --format helm"), "{said}");
}
