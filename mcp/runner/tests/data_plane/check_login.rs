//! `mcp-runner check-login` against a login whose every step can be broken.

use std::ffi::OsString;

use portcullis_testing::free_address;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::lab::{
    ANSWER, APPENDED, INSERTED, Lab, PREFLIGHT, PROVIDER, REFUSAL, RESOURCE, ROOT, Replies, Reply, STREAM, TOKEN,
};
use crate::support::{server_tls, within};

use As::{Client, ClientOfOther, Expired, ForOtherServer, IdToken, Nobody, OfOtherIssuer, Opaque, Token, Tomorrow};
use Break::{Error, Gone, Header, Html, Long, Member, Nothing, Page, Pointer, Redirect, Silent, Status};

const SECRET: &str = "the client's secret/+%";

/// A finished check.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
    pub(crate) log: String,
}

pub(crate) async fn check(url: &str, flags: &[OsString]) -> Checked {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_mcp-runner"));
    command.arg("check-login").arg(url).args(flags).env_remove("KUBERNETES_SERVICE_HOST").kill_on_drop(true);
    let output = within("the check to end", command.output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Checked { status: output.status.code(), output: text(output.stdout), log: text(output.stderr) }
}

impl Checked {
    /// The step of this name in the report.
    pub(crate) fn step(&self, name: &str) -> Value {
        let report: Value = serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let steps = report["steps"].as_array().unwrap();
        steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("{name}: {self:?}")).clone()
    }

    /// Names of the steps with this status, in order.
    pub(crate) fn steps(&self, status: &str) -> Vec<String> {
        let report: Value = serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let steps = report["steps"].as_array().unwrap().iter().filter(|step| step["status"] == status);
        steps.map(|step| step["step"].as_str().unwrap().to_owned()).collect()
    }
}

/// The credentials of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum As {
    Nobody,
    Client,
    /// A client of another provider than the server's.
    ClientOfOther,
    Opaque,
    Token,
    Expired,
    Tomorrow,
    OfOtherIssuer,
    ForOtherServer,
    IdToken,
}

fn flags(lab: &Lab, who: As, others: &[&str]) -> Vec<OsString> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let file = |name: &str, content: &str| lab.file(name, content).into_os_string();
    let mut flags = vec!["--ca-bundle".into(), lab.ca().into_os_string(), "--output".into(), "json".into()];
    let token = match who {
        Nobody => None,
        Client | ClientOfOther => {
            let issuer = if who == Client { lab.issuer() } else { "https://idp.example".to_owned() };
            flags.extend(["--client-id".into(), "machine".into(), "--issuer".into(), issuer.into()]);
            flags.extend(["--client-secret-file".into(), file("secret", &format!("{SECRET}\n"))]);
            None
        }
        Opaque => Some("an-opaque-token".to_owned()),
        Token => Some(lab.token(&json!({}))),
        Expired => Some(lab.token(&json!({"exp": now - 60}))),
        Tomorrow => Some(lab.token(&json!({"nbf": now + 9000, "exp": now + 9999}))),
        OfOtherIssuer => Some(lab.token(&json!({"iss": "https://idp.example"}))),
        ForOtherServer => Some(lab.token(&json!({"aud": "https://other.example"}))),
        IdToken => Some(lab.token(&json!({"aud": "client", "nonce": "n"}))),
    };
    flags.extend(token.into_iter().flat_map(|token| ["--token-file".into(), file("token", &format!("{token}\n"))]));
    flags.extend(others.iter().map(OsString::from));
    flags
}

/// A member of the JSON body at `place`, or none of that name.
fn edit(replies: &mut Replies, place: &str, name: &str, value: Option<Value>) {
    let reply = replies.get_mut(place).unwrap();
    let mut body: Value = serde_json::from_str(&reply.body).unwrap();
    let members = body.as_object_mut().unwrap();
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    reply.body = body.to_string();
}

fn set(replies: &mut Replies, place: &'static str, change: impl FnOnce(Reply) -> Reply) {
    let reply = replies.remove(place).unwrap();
    replies.insert(place, change(reply));
}

/// A fault in a login that works.
#[derive(Clone, Copy, Debug)]
enum Break {
    Nothing,
    /// Nothing is at this place.
    Gone(&'static str),
    Status(&'static str, u16),
    /// The challenge has this `resource_metadata`.
    Pointer(&'static str),
    Header(&'static str, &'static str, &'static str),
    /// A member of the document has this value in JSON; an empty one takes it away.
    Member(&'static str, &'static str, &'static str),
    /// A member of the whole document, which is an error of this status.
    Error(&'static str, u16, &'static str),
    Html(&'static str),
    /// The server takes no POST of a caller with a token, and shows a web page.
    Page,
    Redirect(&'static str),
    Silent(&'static str),
    Long(&'static str),
}

impl Break {
    fn apply(self, all: &mut Replies) {
        let plain = |status| Reply::json(status, &json!({}));
        match self {
            Self::Nothing => {}
            Self::Gone(place) => drop(all.remove(place)),
            Self::Status(place, status) => {
                set(all, place, |_| Reply { body: "unavailable".to_owned(), ..plain(status) });
            }
            Self::Pointer(url) => {
                let challenge = format!("Bearer resource_metadata=\"{url}\"");
                set(all, REFUSAL, |reply| reply.with(CHALLENGE, challenge));
            }
            Self::Header(place, name, value) => set(all, place, |reply| reply.with(name, value)),
            Self::Member(place, name, "") => edit(all, place, name, None),
            Self::Member(place, name, json) => edit(all, place, name, Some(serde_json::from_str(json).unwrap())),
            Self::Error(place, status, error) => {
                let body = json!({"error": error, "error_description": "told by the provider"});
                set(all, place, |_| Reply::json(status, &body));
            }
            Self::Html(place) => {
                let page = Reply { body: "<html>Sign in</html>".to_owned(), ..plain(200) };
                set(all, place, |_| page.with("content-type", "text/html"));
            }
            Self::Page => {
                Self::Status(ANSWER, 405).apply(all);
                all.insert(STREAM, plain(200).with("content-type", "text/html"));
            }
            Self::Redirect(place) => {
                set(all, place, |_| plain(302).with("location", "https://elsewhere.example/login?state=s3cret"));
            }
            Self::Silent(place) => set(all, place, |reply| Reply { silent: true, ..reply }),
            Self::Long(place) => set(all, place, |reply| Reply { body: " ".repeat(2 << 20), ..reply }),
        }
    }
}

/// A fault, the credentials, the step that fails, the verdict on it, and a part of what was seen.
type Row = (Break, As, &'static str, &'static str, &'static str);

const CHALLENGE: &str = "www-authenticate";
const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

const WITHOUT_PROVIDER: &[Row] = &[
    (Silent(REFUSAL), Nobody, "reach", "server-slow", "no answer within"),
    (Long(REFUSAL), Nobody, "reach", "server-too-long", "longer than"),
    (Status(REFUSAL, 200), Nobody, "challenge", "no-login", "200 OK"),
    (Redirect(REFUSAL), Nobody, "challenge", "server-redirects", "elsewhere.example/login?…\""),
    (Status(REFUSAL, 403), Nobody, "challenge", "server-forbids", "403"),
    (Gone(REFUSAL), Nobody, "challenge", "wrong-path", "404"),
    (Status(REFUSAL, 502), Nobody, "challenge", "server-fails", "502"),
    (Status(REFUSAL, 429), Nobody, "challenge", "server-fails", "429"),
    (Status(REFUSAL, 400), Nobody, "challenge", "no-challenge", "400"),
    (Pointer("/meta"), Nobody, "resource-metadata", "pointer-relative", "/meta"),
    (Pointer("http://mcp.ns.svc/m"), Nobody, "resource-metadata", "pointer-plain", "mcp.ns.svc"),
    (Pointer("https://mcp.invalid/m"), Nobody, "resource-metadata", "resource-metadata-unreachable", "mcp.invalid"),
    (Pointer("https://169.254.169.254/"), Nobody, "resource-metadata", "resource-metadata-unreachable", "not called"),
    (Gone(RESOURCE), Nobody, "resource-metadata", "resource-metadata-missing", "404"),
    (Redirect(RESOURCE), Nobody, "resource-metadata", "resource-metadata-redirects", "elsewhere.example"),
    (Html(RESOURCE), Nobody, "resource-metadata", "resource-metadata-no-json", "text/html"),
    (Silent(RESOURCE), Nobody, "resource-metadata", "resource-metadata-slow", "no answer within"),
    (Long(RESOURCE), Nobody, "resource-metadata", "resource-metadata-too-long", "longer than"),
    (Member(RESOURCE, "resource", ""), Nobody, "resource-metadata", "resource-metadata-invalid", "`resource`"),
    (Member(RESOURCE, "resource", r#""https://h/mcp""#), Nobody, "resource", "resource-differs", "https://h/mcp"),
    (servers(r#""https://i""#), Nobody, "resource-metadata", "resource-metadata-invalid", "no list"),
    (servers("[]"), Nobody, "authorization-server", "no-authorization-server", "none"),
    (servers(r#"["http://idp.example"]"#), Nobody, "authorization-server", "issuer-plain", "http://idp.example"),
    (servers(r#"["idp.example"]"#), Nobody, "authorization-server", "issuer-invalid", "idp.example"),
    (servers(r#"["https://idp.invalid"]"#), Nobody, "provider-metadata", "provider-unreachable", "idp.invalid"),
];

const WITH_PROVIDER: &[Row] = &[
    (
        Gone(PROVIDER),
        Nobody,
        "provider-metadata",
        "provider-metadata-missing",
        "/realm/.well-known/openid-configuration: 404",
    ),
    (Redirect(PROVIDER), Nobody, "provider-metadata", "provider-redirects", "302"),
    (Status(PROVIDER, 503), Nobody, "provider-metadata", "provider-fails", "503"),
    (Status(PROVIDER, 429), Nobody, "provider-metadata", "provider-fails", "429"),
    (Html(PROVIDER), Nobody, "provider-metadata", "provider-metadata-no-json", "text/html"),
    (Silent(PROVIDER), Nobody, "provider-metadata", "provider-slow", "no answer within"),
    (Long(PROVIDER), Nobody, "provider-metadata", "provider-too-long", "longer than"),
    (Member(PROVIDER, "issuer", ""), Nobody, "provider-metadata", "provider-metadata-invalid", "issuer"),
    (Member(PROVIDER, "issuer", r#""https://i/realm/""#), Nobody, "issuer", "issuer-differs", "https://i/realm/"),
    (Member(PROVIDER, "authorization_endpoint", ""), Nobody, "endpoints", "endpoint-missing", "authorization_endpoint"),
    (Member(PROVIDER, "token_endpoint", r#""http://i/t""#), Nobody, "endpoints", "endpoint-plain", "http://i/t"),
    (Member(PROVIDER, METHODS, ""), Nobody, "pkce", "pkce-unnamed", "absent"),
    (Member(PROVIDER, METHODS, r#"["plain"]"#), Nobody, "pkce", "pkce-without-s256", "plain"),
    (Member(PROVIDER, "registration_endpoint", ""), Nobody, "registration", "no-registration", "neither"),
    (
        Member(PROVIDER, "registration_endpoint", r#""http://i/r""#),
        Nobody,
        "registration",
        "registration-plain",
        "http://i/r",
    ),
    (Header(PROVIDER, "date", OLD), Nobody, "clock", "clock-of-provider", "the provider is"),
    (Header(REFUSAL, "date", OLD), Nobody, "clock", "clock-of-server", "the server is"),
];

const WITH_CREDENTIALS: &[Row] = &[
    (Nothing, ClientOfOther, "token", "secret-of-other-issuer", "/realm\", and --issuer is \"https://idp.example\""),
    (Error(TOKEN, 401, "invalid_client"), Client, "token", "client-refused", "invalid_client"),
    (Error(TOKEN, 400, "unauthorized_client"), Client, "token", "grant-refused", "unauthorized_client"),
    (Error(TOKEN, 400, "invalid_scope"), Client, "token", "scope-refused", "told by the provider"),
    (Error(TOKEN, 400, "invalid_target"), Client, "token", "resource-refused", "invalid_target"),
    (Html(TOKEN), Client, "token", "token-endpoint-fails", "/token"),
    (Member(TOKEN, "access_token", r#""a\r\nb: c""#), Client, "token", "token-endpoint-fails", "without an `access"),
    (Nothing, Expired, "token", "token-expired", "expired 6"),
    (Nothing, Tomorrow, "token", "token-not-yet-valid", "not valid before"),
    (Nothing, OfOtherIssuer, "token", "token-of-other-issuer", "https://idp.example"),
    (Status(ANSWER, 401), ForOtherServer, "initialize", "token-wrong-audience", "https://other.example"),
    (Status(ANSWER, 401), IdToken, "initialize", "token-is-id-token", "401"),
    (Status(ANSWER, 401), Opaque, "initialize", "token-opaque", "an opaque token"),
    (Status(ANSWER, 401), Token, "initialize", "token-refused", "401"),
    (Status(ANSWER, 403), Token, "initialize", "caller-forbidden", "403"),
    (Status(ANSWER, 503), Token, "initialize", "proxy-cannot-check", "unavailable"),
    (Status(ANSWER, 502), Token, "initialize", "server-fails-behind-login", "502"),
    (Html(ANSWER), Token, "initialize", "no-mcp-answer", "text/html), which"),
    (Page, Token, "initialize", "server-fails-behind-login", "405"),
];

const METHODS: &str = "code_challenge_methods_supported";

const fn servers(json: &'static str) -> Break {
    Member(RESOURCE, "authorization_servers", json)
}

#[tokio::test]
async fn each_broken_step_of_a_login_is_named_with_its_verdict() {
    let lab = Lab::start().await;
    for (breaks, who, step, verdict, seen) in [WITHOUT_PROVIDER, WITH_PROVIDER, WITH_CREDENTIALS].into_iter().flatten()
    {
        let mut replies = lab.good();
        breaks.apply(&mut replies);
        lab.answers(replies);
        let time: &[&str] = if matches!(breaks, Silent(_)) { &["--timeout=3s"] } else { &[] };
        let checked = check(&lab.url(), &flags(&lab, *who, time)).await;
        let found = checked.step(step);
        assert_eq!((checked.status, &found["verdict"]), (Some(1), &json!(verdict)), "{breaks:?}: {checked:?}");
        assert_eq!(checked.steps("failed").first().map(String::as_str), Some(*step), "{breaks:?}: {checked:?}");
        assert!(found["seen"].as_str().unwrap().contains(seen), "{breaks:?}: {found}");
        assert!(checked.log.contains(step) && !checked.output.contains("s3cret"), "{breaks:?}: {checked:?}");
    }
}

#[tokio::test]
async fn the_scopes_that_a_call_needs_are_told() {
    let lab = Lab::start().await;
    let mut replies = lab.good();
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"mcp:write\"";
    set(&mut replies, ANSWER, |_| Reply::json(403, &json!({})).with(CHALLENGE, challenge));
    edit(&mut replies, TOKEN, "scope", Some(json!("other")));
    lab.answers(replies);
    let checked = check(&lab.url(), &flags(&lab, Client, &[])).await;
    let found = checked.step("initialize");
    assert_eq!((checked.status, &found["verdict"]), (Some(1), &json!("scope-insufficient")), "{checked:?}");
    assert!(found["seen"].as_str().unwrap().contains("mcp:write"), "{found}");
    assert_eq!(checked.step("token")["verdict"], "scope-not-granted", "{checked:?}");
}

#[tokio::test]
async fn a_client_in_a_browser_is_a_note_until_it_is_a_step() {
    let lab = Lab::start().await;
    let without = |reply: Reply, name: &str| {
        let headers = reply.headers.into_iter().filter(|(other, _)| *other != name).collect();
        Reply { headers, ..reply }
    };
    let origin = "access-control-allow-origin";
    for (place, name, verdict) in [
        (PREFLIGHT, origin, "preflight-refused"),
        (PREFLIGHT, "access-control-allow-headers", "preflight-headers"),
        (REFUSAL, origin, "answer-unreadable"),
        (REFUSAL, "access-control-expose-headers", "headers-hidden"),
        (RESOURCE, origin, "resource-metadata-unreadable"),
        (PROVIDER, origin, "provider-metadata-unreadable"),
    ] {
        let mut replies = lab.good();
        set(&mut replies, place, |reply| without(reply, name));
        lab.answers(replies);
        for (flag, status, told) in [(&[][..], 0, "note"), (&["--browser"], 1, "failed")] {
            let checked = check(&lab.url(), &flags(&lab, Nobody, flag)).await;
            let found = checked.step("browser");
            assert_eq!(checked.status, Some(status), "{verdict}: {checked:?}");
            assert_eq!((&found["status"], &found["verdict"]), (&json!(told), &json!(verdict)), "{checked:?}");
        }
    }
}

#[tokio::test]
async fn a_login_that_works_passes_by_every_way_that_mcp_has() {
    let lab = Lab::start().await;
    let elsewhere = |all: &mut Replies, from: &str, to: &'static str| {
        let reply = all.remove(from).unwrap();
        all.insert(to, reply);
    };
    for (case, change, notes) in [
        ("as it is", Box::new(|_: &mut Replies| {}) as Box<dyn Fn(&mut Replies)>, &[][..]),
        (
            "without a pointer",
            Box::new(|all: &mut Replies| set(all, REFUSAL, |reply| reply.with(CHALLENGE, "Bearer"))),
            &["challenge"],
        ),
        (
            "metadata at the root",
            Box::new(|all: &mut Replies| {
                set(all, REFUSAL, |reply| reply.with(CHALLENGE, "Negotiate"));
                elsewhere(all, RESOURCE, ROOT);
                let resource = lab.url().trim_end_matches("/mcp").to_owned();
                edit(all, ROOT, "resource", Some(json!(resource)));
            }),
            &["challenge"],
        ),
        ("OpenID Connect, path inserted", Box::new(|all: &mut Replies| elsewhere(all, PROVIDER, INSERTED)), &[]),
        ("OpenID Connect, path appended", Box::new(|all: &mut Replies| elsewhere(all, PROVIDER, APPENDED)), &[]),
        (
            "client ID metadata documents",
            Box::new(|all: &mut Replies| {
                edit(all, PROVIDER, "registration_endpoint", None);
                edit(all, PROVIDER, "client_id_metadata_document_supported", Some(json!(true)));
            }),
            &[],
        ),
        (
            "a scope that is not listed",
            Box::new(|all: &mut Replies| edit(all, PROVIDER, "scopes_supported", Some(json!(["openid"])))),
            &["scopes"],
        ),
        (
            "events in place of JSON",
            Box::new(|all: &mut Replies| {
                set(all, ANSWER, |reply| {
                    let body = format!("id: 1\n\nevent: message\ndata: {}\n\n", reply.body);
                    Reply { body, ..reply }.with("content-type", "text/event-stream")
                });
            }),
            &[],
        ),
    ] {
        let mut replies = lab.good();
        change(&mut replies);
        lab.answers(replies);
        let checked = check(&lab.url(), &flags(&lab, Client, &["--browser"])).await;
        assert_eq!(checked.status, Some(0), "{case}: {checked:?}");
        assert_eq!(
            (checked.steps("note"), checked.steps("skipped").len()),
            (notes.iter().map(ToString::to_string).collect(), 0),
            "{case}"
        );
        let asked = lab.asked();
        assert!(!asked.iter().any(|request| request.contains("/register")), "{case}: nothing is registered: {asked:?}");
        assert!(asked.iter().any(|request| request.starts_with("proxy DELETE /mcp with a token")), "{case}: {asked:?}");
        let form = asked.iter().find(|request| request.starts_with(TOKEN)).unwrap();
        let resource = if case == "metadata at the root" { "" } else { "%2Fmcp" };
        assert!(
            form.contains(&format!("{resource}&scope=mcp")) && form.contains("resource=https%3A%2F%2F127.0.0.1"),
            "{form}"
        );
    }
}

#[tokio::test]
async fn secrets_are_shown_to_nobody_else_and_never_printed() {
    let lab = Lab::start().await;
    let token = lab.token(&json!({}));
    let echo = |all: &mut Replies, what: &str| {
        let description = format!("you sent {what}, {}", what.repeat(3));
        let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{description}\"");
        set(all, ANSWER, |_| Reply::json(401, &json!({})).with(CHALLENGE, challenge));
    };
    for (who, output) in [(Client, "json"), (Token, "json"), (Client, "text")] {
        let mut replies = lab.good();
        edit(&mut replies, TOKEN, "access_token", Some(json!(token)));
        echo(&mut replies, &token);
        lab.answers(replies);
        let mut flags = flags(&lab, who, &[]);
        flags[3] = output.into();
        let checked = check(&lab.url(), &flags).await;
        assert_eq!(checked.status, Some(1), "{checked:?}");
        let told = format!("{}{}", checked.output, checked.log);
        assert!(told.contains("[redacted]"), "{told}");
        // Not even the beginning of one: claims are in it.
        assert!(!told.contains(&token[..40]), "{told}");
    }
    // A provider that repeats the secret.
    let mut replies = lab.good();
    set(&mut replies, TOKEN, |_| Reply::json(400, &json!({"error": "invalid_request", "error_description": SECRET})));
    lab.answers(replies);
    let checked = check(&lab.url(), &flags(&lab, Client, &[])).await;
    assert!(checked.output.contains("[redacted]") && !checked.output.contains(SECRET), "{checked:?}");
}

#[tokio::test]
async fn secrets_and_tokens_stay_with_their_own_issuer() {
    let lab = Lab::start().await;
    let of_another = Member(PROVIDER, "issuer", r#""https://idp.example""#);
    for (breaks, who) in [
        (Nothing, ClientOfOther),
        (of_another, Client),
        (of_another, ClientOfOther),
        // The provider would give a token for a server that this one names.
        (Member(RESOURCE, "resource", r#""https://h/mcp""#), Client),
        (Nothing, OfOtherIssuer),
        (of_another, OfOtherIssuer),
        (Gone(PROVIDER), OfOtherIssuer),
    ] {
        let mut replies = lab.good();
        breaks.apply(&mut replies);
        lab.answers(replies);
        let checked = check(&lab.url(), &flags(&lab, who, &[])).await;
        assert_eq!(checked.status, Some(1), "{breaks:?}: {checked:?}");
        let asked = lab.asked();
        let is_told = |request: &String| request.contains("/token") || request.contains("with a token");
        assert!(!asked.iter().any(is_told), "{breaks:?} {who:?}: {asked:?}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_from_a_stranger() {
    let lab = Lab::start().await;
    lab.answers(lab.good());
    let (_, other) = server_tls("other");
    let ca = lab.file("other.crt", &other).into_os_string();
    for (url, verdict) in
        [(lab.url(), "server-certificate"), (format!("https://{}/mcp", free_address()), "server-unreachable")]
    {
        let checked = check(&url, &["--ca-bundle".into(), ca.clone(), "--output=json".into()]).await;
        assert_eq!((checked.status, &checked.step("reach")["verdict"]), (Some(1), &json!(verdict)), "{checked:?}");
    }
}

#[tokio::test]
async fn bad_input_ends_with_2_and_names_the_flag() {
    let directory = TempDir::new().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let empty = empty.to_str().unwrap();
    let header = directory.path().join("header");
    std::fs::write(&header, "Bearer s3cret\n").unwrap();
    for (arguments, named) in [
        (&["mcp.example.com"][..], "https://mcp.example.com/mcp"),
        (&["https://user:s3cret@mcp.example.com"], "without a user name"),
        (&["https://h", "--token-file", "/nowhere/token"], "--token-file: /nowhere/token"),
        (&["https://h", "--token-file", empty], "one line"),
        (&["https://h:99999"], "valid port"),
        (&["https://h", "--token-file", "/dev/zero"], "regular file"),
        (&["https://h", "--token-file", header.to_str().unwrap()], "the token alone"),
        (&["https://h", "--client-id", ""], "--client-id"),
        (&["https://h", "--client-secret-file", empty], "--client-id"),
        (&["https://h", "--client-secret-file", empty, "--client-id", "c"], "--issuer"),
        (&["https://h", "--issuer", "https://i"], "--client-secret-file"),
        (&["https://h", "--ca-bundle", "/nowhere/ca"], "--ca-bundle"),
        (&["https://h", "--origin", "https://h/page"], "--origin"),
        (&["https://h", "--timeout", "1h"], "--timeout"),
        (&["https://h", "--oidc-issuer", "x"], "--oidc-issuer"),
        (&[], "<URL>"),
    ] {
        let (url, flags) = arguments.split_first().map_or(("", &[][..]), |(url, flags)| (*url, flags));
        let flags: Vec<_> = flags.iter().map(OsString::from).collect();
        let checked = check(url, &flags).await;
        assert!(
            checked.status == Some(2) && checked.output.is_empty() && checked.log.contains(named),
            "{named}: {checked:?}"
        );
        assert!(!checked.log.contains("s3cret"), "{checked:?}");
    }
}
