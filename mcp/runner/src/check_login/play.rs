//! Plays a client's login against a server, a step after the other.

use http::Uri;
use jiff::Timestamp;
use mcp_authn::ProviderMetadata;
use mcp_middleware::Secret;

use crate::check_login::abilities::{self, Registered};
use crate::check_login::answer::Call;
use crate::check_login::caller::Caller;
use crate::check_login::challenge::{self, Challenge};
use crate::check_login::requests::{as_page, ask_for_token, greet, json_headers, leave, streams};
use crate::check_login::resource::{self, ResourceMetadata};
use crate::check_login::token::{self, Expected, Token};
use crate::check_login::verdict::{Finding, Judged, Status, Step};
use crate::check_login::{browser, clock, initialize, provider};

/// The server that is checked, and as whom.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: Uri,
    pub(crate) client: Option<Client>,
    pub(crate) token: Option<Secret>,
    /// The page for whose sake CORS is looked at, and whether that is a step.
    pub(crate) origin: String,
    pub(crate) browser: bool,
}

/// A client that is registered at the provider.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: String,
    /// Its secret, and the issuer that it is for.
    pub(crate) secret: Option<(Secret, String)>,
}

/// A provider whose metadata were read.
struct Provider {
    issuer: String,
    metadata: ProviderMetadata,
    call: Call,
    /// `None` where an endpoint cannot be used.
    token_endpoint: Option<Uri>,
}

/// Findings so far.
#[derive(Default)]
struct Findings {
    all: Vec<Finding>,
    /// The token that the provider gave.
    issued: Option<Secret>,
}

impl Findings {
    /// Keeps the finding, and what it found out.
    fn take<T>(&mut self, judged: Judged<T>) -> Option<T> {
        let (found, finding) = match judged {
            Ok((found, finding)) => (Some(found), finding),
            Err(finding) => (None, finding),
        };
        self.all.push(finding);
        found
    }

    fn note(&mut self, finding: Finding) {
        self.all.push(finding);
    }

    fn has_failed(&self, steps: [Step; 2]) -> bool {
        self.all.iter().any(|finding| finding.status == Status::Failed && steps.contains(&finding.step))
    }
}

/// Plays it. Steps that are not among the findings were not reached. Returns also the token that the provider gave: a report must not show it.
pub(crate) async fn play(target: &Target, caller: &mut Caller) -> (Vec<Finding>, Option<Secret>) {
    let mut found = Findings::default();
    // `None` where a step ended it early.
    let _ = steps(target, caller, &mut found).await;
    (found.all, found.issued)
}

async fn steps(target: &Target, caller: &mut Caller, found: &mut Findings) -> Option<()> {
    let first = greet(caller, &target.url, None, None).await;
    let refusal = found.take(challenge::reach(&target.url, &first))?;
    let challenge = found.take(challenge::judge(&first, refusal));
    if challenge.is_none() {
        // It may have opened a session.
        leave(caller, &target.url, refusal, None).await;
    }
    let challenge = challenge?;
    let (resource, resource_url) = find_resource(target, caller, found, &challenge).await.unzip();
    let provider = match &resource {
        Some(resource) => find_provider(target, caller, found, resource).await,
        None => None,
    };
    let wanted = abilities::wanted(
        challenge.scope.as_deref(),
        resource.as_ref().and_then(|resource| resource.scopes.as_deref()),
    );
    let mut ahead = clock::ahead(refusal);
    if let Some(provider) = &provider {
        found.note(abilities::pkce(&provider.metadata));
        let registered = match (&target.client, &target.token) {
            (Some(_), _) => Registered::Client,
            (None, Some(_)) => Registered::Token,
            (None, None) => Registered::No,
        };
        found.note(abilities::registration(&provider.metadata, registered));
        found.note(abilities::scopes(&provider.metadata, &wanted));
        let providers = provider.call.answer.as_ref().ok().and_then(clock::ahead);
        found.note(clock::judge(ahead, providers));
        ahead = ahead.or(providers);
    }
    let now = || Timestamp::now().as_second() + ahead.unwrap_or_default();
    let issuers = resource.as_ref().map(|resource| resource.authorization_servers.as_slice()).unwrap_or_default();
    let expected = Expected { issuers, now: now() };
    let (metadata, scopes) = (resource.as_ref().zip(provider.as_ref()), abilities::of_machines(&wanted));
    if let Some(token) = have_token(target, caller, found, metadata, &scopes, expected).await {
        let named = resource.as_ref().map(|resource| resource.resource.as_str());
        let call = greet(caller, &target.url, Some(&token.secret), None).await;
        let mut finding = initialize::judge(&call, &token, named, now());
        if initialize::may_be_sse(&call) && streams(caller, &target.url, &token.secret).await {
            finding =
                Finding::ok(Step::Initialize, "the token is taken, and the server opens a stream (HTTP with SSE)");
        }
        found.note(finding);
        if let Ok(answer) = &call.answer {
            leave(caller, &target.url, answer, Some(&token.secret)).await;
        }
    }
    let provider_url = provider.map(|provider| provider.call.url);
    let calls = as_page(caller, &target.url, &target.origin, [resource_url, provider_url]).await;
    found.note(browser::judge(&calls, &target.origin, target.browser));
    Some(())
}

/// The protected-resource metadata, and where they are.
async fn find_resource(
    target: &Target,
    caller: &mut Caller,
    found: &mut Findings,
    challenge: &Challenge,
) -> Option<(ResourceMetadata, Uri)> {
    let places = match resource::places(&target.url, challenge) {
        Ok(places) => places,
        Err(finding) => {
            found.note(finding);
            return None;
        }
    };
    let at_root = places.len() > 1;
    let calls = look(caller, &places).await;
    let metadata = found.take(resource::read(&calls))?;
    let at_root = at_root && calls.len() == places.len();
    found.note(resource::judge(&target.url, &metadata.resource, at_root));
    Some((metadata, calls.last()?.url.clone()))
}

/// The metadata of the provider that the server names.
async fn find_provider(
    target: &Target,
    caller: &mut Caller,
    found: &mut Findings,
    resource: &ResourceMetadata,
) -> Option<Provider> {
    let own = target.client.as_ref().and_then(|client| client.secret.as_ref()).map(|(_, issuer)| issuer.as_str());
    let (issuer, url) = found.take(provider::issuer(resource, &target.url, own))?;
    let mut calls = look(caller, &provider::places(&issuer, &url)).await;
    let metadata = found.take(provider::read(&calls))?;
    found.note(provider::judge(&metadata, &issuer));
    let call = calls.pop()?;
    let token_endpoint = found.take(abilities::endpoints(&metadata, &call.url));
    Some(Provider { issuer, metadata, call, token_endpoint })
}

/// Gets the first of these documents that is there; the calls that it took.
async fn look(caller: &mut Caller, places: &[Uri]) -> Vec<Call> {
    let mut calls = Vec::new();
    for place in places {
        let call = caller.get(place, json_headers(&[])).await;
        let goes_on = call.finds_nothing();
        calls.push(call);
        if !goes_on {
            break;
        }
    }
    calls
}

/// The token that is given, or that the provider gives to the client, when it may be shown to the server.
async fn have_token(
    target: &Target,
    caller: &mut Caller,
    found: &mut Findings,
    metadata: Option<(&ResourceMetadata, &Provider)>,
    scopes: &str,
    expected: Expected<'_>,
) -> Option<Token> {
    if let Some(secret) = &target.token {
        let token = Token::new(secret.reveal());
        return found.take(token.judge(expected).map(|finding| (token, finding)));
    }
    let client = target.client.as_ref();
    let Some((id, (secret, own))) = client.and_then(|client| Some((&client.id, client.secret.as_ref()?))) else {
        found.note(Finding::skipped(Step::Token, "neither --token-file nor --client-secret-file is given"));
        return None;
    };
    let (resource, provider) = metadata?;
    // A server that names another's resource would get a token for it, and metadata of another issuer would lead the secret
    // elsewhere.
    if found.has_failed([Step::Resource, Step::Issuer]) {
        return None;
    }
    if *own != provider.issuer {
        found.note(token::secret_is_of_other(own, &provider.issuer));
        return None;
    }
    let (endpoint, resource) = (provider.token_endpoint.as_ref()?, &resource.resource);
    let call = ask_for_token(caller, endpoint, &provider.metadata, (id, secret), resource, scopes).await;
    let issued = token::issued(&call, scopes);
    found.issued = issued.as_ref().ok().map(|(token, _)| token.secret.clone());
    found.take(issued.and_then(|issued| token::judge_issued(issued, expected)))
}
