//! Decisions by a policy decision point that is asked over HTTP, `httpv1` (toolhive-auth §4.8).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use mcp_authz::{Denial, Feature, Hints, PdpForm, Question};
use mcp_http::client::{Client as HttpClient, ClientTls, RequestLimits};
use mcp_middleware::{BuildContext, Identity};
use mcp_runconfig::endpoint::EndpointPolicy;
use mcp_runconfig::{PdpConfig, PdpHttp};
use mcp_store::{Bound, Client, Places};
use mcp_wire::{List, OwnedMessage};
use serde_json::Value;
use tokio::time::timeout;

use super::{Tools, questions};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
/// The time for one question where the document says none.
const TIME: Duration = Duration::from_secs(30);
/// The time for all questions of one list, and the longest for one question.
const LIST_TIME: Duration = Duration::from_mins(1);
/// The longest answer, in bytes.
const ANSWER: usize = 64 << 10;
/// The time for all questions of a message that asks several, such as a subscription.
const SEVERAL_TIME: Duration = Duration::from_secs(30);
/// The questions at once in all, and for each client: one that asks many must leave some to the others.
const LIMIT: usize = 256;
const LIMIT_OF_CLIENT: usize = 16;
/// The questions of one list that are open at once.
const AT_ONCE: usize = 8;

/// The statuses by which it says that it cannot read one question.
const BLAMES: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::URI_TOO_LONG,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
];

/// A policy decision point.
pub(super) struct Pdp {
    form: PdpForm,
    client: HttpClient,
    path: PathAndQuery,
    time: Duration,
    places: Places,
}

/// A question that has no usable answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Denied(Denial),
    #[error("the policy decision point gives no usable answer: {0}")]
    NoAnswer(String),
}

impl Pdp {
    /// The error is the member of `config`, what is wrong with it, and the fix.
    pub(super) fn new(config: PdpConfig, context: &BuildContext) -> Result<Self, (&'static str, String, String)> {
        let PdpConfig { http, context: members, claim_mapping } = config;
        let missing = |member| (member, "is missing".to_owned(), "write it".to_owned());
        let PdpHttp { url, timeout, insecure_skip_verify } = http.ok_or_else(|| missing("http"))?;
        let settings = &context.settings;
        let endpoints = EndpointPolicy {
            egress: settings.egress.clone(),
            ..EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone())
        };
        let fix = || "write the http or https URL before /decision".to_owned();
        let problem = |problem: String| ("http.url", problem, fix());
        endpoints.check_base_url(&url).map_err(|error| problem(error.to_string()))?;
        let uri: Uri = format!("{}/decision", url.trim_end_matches('/'))
            .parse()
            .map_err(|error: http::uri::InvalidUri| problem(error.to_string()))?;
        let insecure = insecure_skip_verify || uri.scheme() == Some(&http::uri::Scheme::HTTP);
        let tls = ClientTls { insecure, ..ClientTls::default() };
        let client = HttpClient::new("policy decision point", &uri, tls, Some(endpoints), &settings.provider)
            .map_err(|error| ("http", error.problem, "give the proxy root certificates".to_owned()))?;
        Ok(Self {
            form: PdpForm {
                claims: claim_mapping.ok_or_else(|| missing("claim_mapping"))?,
                context: members.unwrap_or_default(),
                server: settings.server_name.clone(),
            },
            client,
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/decision")),
            time: if timeout == 0 { TIME } else { Duration::from_secs(timeout.into()).min(LIST_TIME) },
            places: Places::new("policy_questions", LIMIT, LIMIT_OF_CLIENT),
        })
    }

    pub(super) fn announce(&self) {
        let (host, seconds) = (self.client.server().host().unwrap_or_default(), self.time.as_secs());
        tracing::info!(host, seconds, "calls are authorized by a policy decision point");
        if self.client.is_insecure() {
            tracing::warn!(
                host,
                "the policy decision point is asked without checking its certificate: anybody on the path can answer"
            );
        }
    }

    pub(super) fn bound(&self) -> Bound {
        self.places.bound()
    }

    /// The questions of a message, as they are sent; `None` where it asks for nothing that is decided on.
    pub(super) fn questions(
        &self,
        message: &OwnedMessage,
        identity: Option<&Identity>,
        tools: &Tools,
    ) -> Option<Result<Vec<Bytes>, Denial>> {
        Some(questions(message)?.and_then(|questions| {
            let principal = self.principal(identity)?;
            let body = |question| self.form.question(&principal, &tools.with_known_hints(question)).map(Bytes::from);
            questions.into_iter().map(body).collect()
        }))
    }

    /// Whether all of these are allowed.
    pub(super) async fn judge(&self, questions: Vec<Bytes>, caller: &Client) -> Result<(), Failure> {
        let several = questions.len() > 1;
        let judged = async {
            for question in questions {
                if !self.ask(question, caller).await? {
                    return Err(Failure::Denied(DENIED));
                }
            }
            Ok(())
        };
        if !several {
            return judged.await;
        }
        let late = |_| Err(Failure::NoAnswer("the answers to all questions did not come within 30 seconds".to_owned()));
        timeout(SEVERAL_TIME, judged).await.unwrap_or_else(late)
    }

    /// The list as the caller sees it. Entries of one name and the same hints are one question.
    pub(super) fn filter(
        self: &Arc<Self>,
        mut list: List,
        identity: Option<&Identity>,
        caller: Client,
    ) -> impl Future<Output = Result<List, &'static str>> + Send + use<> {
        let (asked, principal, this) = (targets_of(&list), self.principal(identity), Arc::clone(self));
        let feature = Feature::of(list.kind());
        async move {
            let (entries, targets) = asked?;
            let (this, principal, caller) = (&this, &principal, &caller);
            // They are written as they are asked: all of them may be long.
            let ask = |(id, hints): Target| async move {
                let question = Question { hints, ..Question::new(feature, id) };
                let body = principal.as_ref().ok().and_then(|principal| this.form.question(principal, &question).ok());
                match body {
                    Some(body) => this.ask(body.into(), caller).await,
                    None => Ok(false),
                }
            };
            let answers = stream::iter(targets).map(ask).buffered(AT_ONCE).try_collect::<Vec<_>>();
            let allowed = timeout(LIST_TIME, answers).await;
            let allowed =
                allowed.map_err(|_| "the policy decision point takes too long for the list")?.map_err(|error| {
                    tracing::warn!(%error, "a list is withheld");
                    "the policy decision point gives no usable answer"
                })?;
            let mut entries = entries.into_iter();
            let mut is_allowed = || entries.next().and_then(|at| allowed.get(at)).is_some_and(|allowed| *allowed);
            list.retain(|_| Ok::<_, &'static str>(is_allowed()))?;
            Ok(list)
        }
    }

    fn principal(&self, identity: Option<&Identity>) -> Result<Value, Denial> {
        let identity = identity.ok_or(Denial::Refused("nobody has said who calls"))?;
        Ok(self.form.principal(&identity.claims))
    }

    async fn ask(&self, question: Bytes, caller: &Client) -> Result<bool, Failure> {
        let fail = |problem: &str| Failure::NoAnswer(problem.to_owned());
        let place = timeout(self.time, self.places.take(caller)).await.ok().flatten();
        let _place = place.ok_or_else(|| fail("too many other questions wait for their answers"))?;
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json")), (USER_AGENT, AGENT)]);
        let limits = RequestLimits { time: self.time, answer: ANSWER };
        let answer = self.client.post_to(self.path.clone(), headers, question, limits).await;
        let answer = answer.map_err(|error| fail(&error.to_string()))?;
        match answer.status() {
            StatusCode::OK => PdpForm::allows(answer.body()).map_err(fail),
            // It is about this question, and says nothing of others.
            status if BLAMES.contains(&status) => Ok(false),
            status => Err(fail(&format!("HTTP {}", status.as_u16()))),
        }
    }
}

const DENIED: Denial = Denial::Refused("the policy decision point denies it");

/// The name and the hints of the thing that a question is about.
type Target = (String, Hints);

/// The target of each entry, by its place among all targets, of which none is there twice.
fn targets_of(list: &List) -> Result<(Vec<usize>, Vec<Target>), &'static str> {
    let (mut known, mut entries, mut targets) = (HashMap::new(), Vec::new(), Vec::new());
    for entry in list.entries() {
        let Question { id, hints, .. } = Question::of(entry)?;
        let target = (id.into_owned(), hints);
        let at = *known.entry(target.clone()).or_insert(targets.len());
        if at == targets.len() {
            targets.push(target);
        }
        entries.push(at);
    }
    Ok((entries, targets))
}
