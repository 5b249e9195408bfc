//! Something in the cluster that keeps one object from being written.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::wait_until;
use serde_json::json;

use super::process::PATIENCE;
use super::versions::Home;

pub(crate) struct Refusal<'a> {
    home: &'a Home,
    person: &'static str,
}

impl<'a> Refusal<'a> {
    /// Denies every update of this object: an answer that is the same the next time.
    pub(crate) async fn of(home: &'a Home, person: &'static str) -> Self {
        let (client, create, name) = (home.cluster.admin(), PostParams::default(), home.namespace.as_str());
        let policy = json!({
            "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["versions.example"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["people"],
                }] },
                "validations": [{ "expression": format!("object.metadata.name != '{person}'"), "message": format!("{person} stays as it is") }],
            }
        });
        let binding =
            json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } });
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        policies.create(&create, &serde_json::from_value(policy).unwrap()).await.unwrap();
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        bindings.create(&create, &serde_json::from_value(binding).unwrap()).await.unwrap();
        let refusal = Self { home, person };
        refusal.until(true).await;
        refusal
    }

    /// Has every update of this object judged by a webhook without a server: the answer is another one when that
    /// changes.
    pub(crate) async fn unavailable(home: &'a Home, person: &'static str) -> Self {
        let labelled = Patch::Merge(json!({ "metadata": { "labels": { "judged": "yes" } } }));
        home.api("v1").patch(person, &PatchParams::default(), &labelled).await.unwrap();
        let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let webhooks = json!({
            "metadata": { "name": home.namespace },
            "webhooks": [{
                "name": "nobody.people.versions.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": { "url": format!("https://{nobody}/") }, "objectSelector": { "matchLabels": { "judged": "yes" } },
                "rules": [{ "apiGroups": ["versions.example"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["people"] }],
            }]
        });
        let api: Api<ValidatingWebhookConfiguration> = Api::all(home.cluster.admin());
        api.create(&PostParams::default(), &serde_json::from_value(webhooks).unwrap()).await.unwrap();
        let refusal = Self { home, person };
        refusal.until(true).await;
        refusal
    }

    /// Lets it be written again.
    pub(crate) async fn lift(self) {
        let (client, name, now) = (self.home.cluster.admin(), &self.home.namespace, DeleteParams::default());
        let found = [
            Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).delete(name, &now).await.is_ok(),
            Api::<ValidatingAdmissionPolicy>::all(client.clone()).delete(name, &now).await.is_ok(),
            Api::<ValidatingWebhookConfiguration>::all(client).delete(name, &now).await.is_ok(),
        ];
        assert!(found.contains(&true), "it was there");
        self.until(false).await;
    }

    async fn until(&self, refused: bool) {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let api = self.home.api("v1");
        let asked = || async {
            let answer = api.patch(self.person, &dry, &Patch::Merge(json!({}))).await;
            (answer.is_err() == refused).then_some(())
        };
        wait_until("updates to be judged otherwise", PATIENCE, asked).await;
    }
}
