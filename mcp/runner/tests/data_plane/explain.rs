//! `mcp-runner explain`: who may call which tool, told by the binary.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::authorization::{DONE, EVERYDAY, PERMIT_ALL, World, authorized, call};
use crate::support::document;

const LOGIN: &str = "https://id.example";
const ROLE: &str = "arn:aws:iam::123456789012:role/mcp";

/// A directory with the files of one question.
struct Files(TempDir);

impl Files {
    fn new(config: &str, claims: &Value, tools: &str, arguments: &Value) -> Self {
        let files = Self(TempDir::new().unwrap());
        files.write("config", config);
        files.write("claims", &claims.to_string());
        files.write("tools", tools);
        files.write("arguments", &arguments.to_string());
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        run(self.0.path(), words)
    }

    /// The answers about all tools in JSON.
    fn explained(&self, words: &[&str]) -> Value {
        let all = [&["--config", "config", "--tools", "tools", "--output", "json"], words].concat();
        let (status, answer, problem) = self.run(&all);
        assert_eq!(status, Some(0), "{problem}");
        serde_json::from_str(&answer).unwrap()
    }
}

/// The exit status of `explain`, and what it says.
fn run(directory: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-runner"));
    let output = command.arg("explain").args(words).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn with_login(policies: &[&str], mut members: Value) -> String {
    members["oidc_config"] = json!({"issuer": LOGIN, "audience": "mcp"});
    document("streamable-http", &authorized(policies, members))
}

fn tools(names: &[&str]) -> String {
    json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()).to_string()
}

/// For each tool its name, whether it is shown, whether it may be called, and who decides.
fn brief(explained: &Value) -> Vec<String> {
    let words = |tool: &Value| {
        let reasons = tool["call"]["because"].as_array().unwrap().iter();
        let by = reasons.map(|reason| reason["name"].as_str().or(reason["guard"].as_str()).unwrap().to_owned());
        let answer = |part: &str| tool[part]["answer"].as_str().unwrap().to_owned();
        let by = by.collect::<Vec<_>>().join(" ");
        format!("{} {} {} {by}", tool["name"].as_str().unwrap(), answer("shown"), answer("call"))
    };
    explained["tools"].as_array().unwrap().iter().map(words).collect()
}

fn hook(name: &str, lists: &Value) -> Value {
    json!({"name": name, "url": "https://hook.example", "failure_policy": "fail", "portcullis": {"match": lists}})
}

#[test]
fn each_guard_of_the_document_has_its_part_in_the_answer() {
    let ann = json!({"sub": "ann", "groups": ["dev"]});
    let small =
        r#"permit(principal, action, resource == Tool::"pay") when { context has arg_n && context.arg_n == "1" };"#;
    let dev = r#"permit(principal in THVGroup::"dev", action, resource == Tool::"echo");"#;
    let mut tried = hook("tried", &json!({}));
    tried["portcullis"]["mode"] = json!("shadow");
    let hooks =
        json!([hook("payments", &json!({"tools": ["pay"]})), hook("others", &json!({"principals": ["bob"]})), tried]);
    let of_bob = hook("bob", &json!({"principals": ["bob"]}));
    let forbid_all = json!({"policies": ["forbid(principal, action, resource);"]});
    let filter = json!({
        "portcullis": {"shadow_policies": {"version": "1.0", "type": "cedarv1", "cedar": forbid_all}},
        "tools_filter": ["say", "pay"], "tools_override": {"echo": {"name": "say"}}, "validating_webhooks": hooks,
    });
    let listed = tools(&["echo", "pay", "rm"]);
    let to_say = |tool: &str| json!({"tools_override": {tool: {"name": "say"}}});
    let to_mid = json!({"tools_override": {"echo": {"name": "mid"}}});
    let with = ["--claims", "claims"];
    for (name, config, words, expected) in [
        (
            "filters, selectors and policies, and shadows that decide nothing",
            with_login(&[dev, small], filter.clone()),
            &with[..],
            &["say yes yes policy0", "pay no dependsOn payments policy1", "rm no no tool-call-filter"][..],
        ),
        ("nobody", with_login(&[dev], json!({})), &[], &["echo no no auth", "pay no no auth", "rm no no auth"]),
        (
            "arguments that are permitted",
            with_login(&[dev, small], json!({})),
            &["--claims", "claims", "--tool", "pay", "--arguments", "arguments"],
            &["pay no yes policy1"],
        ),
        (
            "a webhook that may rename the call",
            with_login(&[dev], json!({"mutating_webhooks": [hook("names", &json!({}))]})),
            &["--claims", "claims", "--tool", "rm"],
            &["rm no dependsOn names authorization"],
        ),
        (
            "no login",
            document("streamable-http", &authorized(&[PERMIT_ALL], json!({}))),
            &["--tool", "rm"],
            &["rm yes yes policy0"],
        ),
        (
            "a tool whose name another one was given",
            document("stdio", &json!({"middleware_configs": [], "tools_override": {"echo": {"name": "rm"}}})),
            &[],
            &["rm yes yes ", "pay yes yes ", "rm no no tool-call-filter"],
        ),
        (
            "the name that another tool was given",
            document("stdio", &json!({"middleware_configs": [], "tools_override": {"echo": {"name": "rm"}}})),
            &["--tool", "rm"],
            &["rm yes yes "],
        ),
        (
            "a filter that gives a name which no call has",
            document("stdio", &json!({"middleware_configs": [{"type": "tool-filter", "parameters": to_say("echo")}]})),
            &[],
            &["say yes no tool-call-filter", "pay yes yes ", "rm yes yes "],
        ),
        (
            "two pairs of filters",
            document(
                "stdio",
                &json!({"middleware_configs": [
                    {"type": "tool-filter", "parameters": to_say("mid")}, {"type": "tool-call-filter", "parameters": to_say("mid")},
                    {"type": "tool-filter", "parameters": to_mid}, {"type": "tool-call-filter", "parameters": to_mid},
                ]}),
            ),
            &[],
            &["say yes yes ", "pay yes yes ", "rm yes yes "],
        ),
        ("no guard", document("stdio", &json!({})), &["--tool", "rm"], &["rm yes yes "]),
        (
            "webhooks that are asked about the list of tools",
            with_login(
                &[PERMIT_ALL],
                json!({"validating_webhooks": [hook("lists", &json!({"methods": ["tools/list"]}))]}),
            ),
            &["--claims", "claims", "--tool", "rm"],
            &["rm dependsOn yes policy0"],
        ),
        (
            "a webhook before the login, which knows no caller yet",
            document(
                "stdio",
                &json!({"middleware_configs": [
                    {"type": "mcp-parser"}, {"type": "validating-webhook", "parameters": {"webhooks": [of_bob]}},
                    {"type": "auth", "parameters": {"oidc_config": {"issuer": LOGIN, "audience": "mcp"}}},
                ]}),
            ),
            &["--claims", "claims", "--tool", "rm"],
            &["rm dependsOn dependsOn bob"],
        ),
        (
            "a mark before the document",
            format!("\u{feff}{}", document("stdio", &json!({}))),
            &["--tool", "rm"],
            &["rm yes yes "],
        ),
        (
            "a decision point",
            document(
                "stdio",
                &json!({"middleware_configs": [], "authz_config": {"version": "1.0", "type": "httpv1", "pdp": {
                    "http": {"url": "https://pdp.example"}, "claim_mapping": "standard",
                }}}),
            ),
            &["--tool", "rm"],
            &["rm dependsOn dependsOn authorization"],
        ),
        (
            "an exchange of the caller's token",
            document(
                "stdio",
                &json!({"middleware_configs": [
                    {"type": "auth", "parameters": {"oidc_config": {"issuer": LOGIN, "audience": "mcp"}}},
                    {"type": "mcp-parser"},
                    {"type": "authorization", "parameters": {"config_data": {"cedar": {"policies": [dev]}}}},
                    {"type": "tokenexchange", "parameters": {"token_exchange_config": {"token_url": LOGIN}}},
                ]}),
            ),
            &["--claims", "claims"],
            &["echo dependsOn dependsOn policy0 tokenexchange", "pay no no authorization", "rm no no authorization"],
        ),
        (
            "a role of AWS",
            with_login(&[PERMIT_ALL], json!({"aws_sts_config": {"region": "eu-west-1", "fallback_role_arn": ROLE}})),
            &["--claims", "claims", "--tool", "rm"],
            &["rm dependsOn dependsOn policy0 awssts"],
        ),
    ] {
        let files = Files::new(&config, &ann, &listed, &json!({"n": "1"}));
        assert_eq!(brief(&files.explained(words)), expected, "{name}");
    }
}

#[test]
fn the_table_names_tool_answer_and_reason() {
    let forbid = r#"forbid(principal, action, resource == Tool::"\u{1b}[2J\u{202e}");"#;
    let config = with_login(&[PERMIT_ALL, forbid], json!({}));
    let listed = json!({"tools": [{"name": "echo"}, {"name": "\u{1b}[2J\u{202e}"}], "nextCursor": "2"}).to_string();
    let files = Files::new(&config, &json!({"sub": "ann"}), &listed, &json!({}));
    let (status, table, _) = files.run(&["--config", "config", "--claims", "claims", "--tools", "tools"]);
    assert_eq!(status, Some(0));
    let lines: Vec<_> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "caller: ann",
            "TOOL SHOWN MAY CALL BECAUSE",
            "echo yes yes authorization policy0 permits it",
            r"\u{1b}[2J\u{202e} no no authorization policy1 forbids it",
            "the list goes on: these are the tools of one page",
        ]
    );
}

#[test]
fn an_input_that_cannot_be_used_is_named_with_field_and_fix() {
    let good = with_login(&[PERMIT_ALL], json!({}));
    let list = tools(&["echo"]);
    let chain = |entries: Value| document("streamable-http", &json!({"middleware_configs": entries}));
    let judge = json!({"type": "validating-webhook", "parameters": {"webhooks": [hook("w", &json!({}))]}});
    let mut change = judge.clone();
    change["type"] = json!("mutating-webhook");
    let tried = json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": ["permit"]}});
    for (file, text, words) in [
        ("config", "", "--config config: kind: is missing; write a RunConfig"),
        ("config", "a: [", "--config config: document: is neither JSON nor YAML"),
        ("config", "{", "--config config: document: is not JSON"),
        ("config", "kind: List", "--config config: kind: is \"List\"; name one ConfigMap"),
        ("config", "kind: ConfigMap\ndata: {}", "--config config: data.runconfig.json: is missing or no text; name"),
        (
            "config",
            "kind: ConfigMap\ndata: {runconfig.json: '{\"name\":1}'}",
            "data.runconfig.json: transport: is missing",
        ),
        ("config", r#"{"kind":"ConfigMap","data":{"a":"","a":""}}"#, "--config config: document: duplicate member `a`"),
        ("config", &chain(json!([{"type": "auth"}, {"type": "teleport"}])), "middleware_configs[1].type: \"teleport\""),
        ("config", &chain(json!([{"type": "auth", "parameters": {"oidc_config": 1}}])), "oidc_config: is a number"),
        ("config", &chain(json!([{"type": "tokenexchange"}])), "tokenexchange needs auth before it"),
        ("config", &with_login(&["permit"], json!({})), "authz_config.cedar.policies[0]: is not one Cedar policy"),
        ("config", &chain(json!([judge])), "middleware_configs[0].type: webhooks need the parser before them"),
        (
            "config",
            &chain(json!([{"type": "mcp-parser"}, judge, change])),
            "middleware_configs[1].type: validating webhooks would judge what mutating ones change",
        ),
        (
            "config",
            &document("streamable-http", &json!({"middleware_configs": [], "portcullis": {"shadow_policies": tried}})),
            "portcullis.shadow_policies.cedar.policies[0]: is not one Cedar policy",
        ),
        (
            "config",
            "kind: ConfigMap\n---\nkind: ConfigMap",
            "--config config: document: holds several documents; name one",
        ),
        ("config", &"x".repeat((4 << 20) + 1), "--config config: file: is longer than 4194304 bytes; name"),
        ("config", &document("stdio", &json!({})), "--claims claims: document: the RunConfig asks for no login"),
        ("claims", "[]", "--claims claims: document: is no JSON object"),
        ("claims", r#"{"sub":"a","sub":"b"}"#, "--claims claims: document: "),
        ("claims", r#"{"name":"ann"}"#, "--claims claims: sub: is missing or no text"),
        ("tools", "x", "--tools tools: document: is no JSON"),
        ("tools", "{}", "--tools tools: tools: is missing; write a JSON-RPC response"),
        ("tools", r#"{"error":{"code":1}}"#, "--tools tools: error: the server has answered with an error"),
        ("tools", r#"[{"name":"a","Name":"b"}]"#, "--tools tools: result.tools: the proxy withholds this list"),
        ("tools", "data: {}", "write a JSON-RPC response, its result, or the list of tools"),
        ("tools", "[]", "--tools tools: result.tools: has no tool that clients call \"echo\"; leave --tool out"),
        ("arguments", "[]", "--arguments arguments: document: is no JSON object; write"),
    ] {
        let files = Files::new(&good, &json!({"sub": "ann"}), &list, &json!({}));
        files.write(file, text);
        let all = ["--config", "config", "--claims", "claims", "--tools", "tools", "--tool", "echo"];
        let (status, _, problem) = files.run(&[&all[..], &["--arguments", "arguments"]].concat());
        let start: String = text.chars().take(80).collect();
        assert_eq!(status, Some(2), "{start}: {problem}");
        assert!(problem.contains(words) && problem.lines().count() == 1, "{start}: {problem}");
    }
    let files = Files::new(&good, &json!({"sub": "ann"}), &list, &json!({}));
    files.write("open", &document("stdio", &json!({})));
    files.write("odd", r#"[{"name":"a","name":"b"}]"#);
    for (words, said) in [
        (&["--config", "open", "--tools", "odd"][..], "--tools odd: result.tools: clients may read it in another way:"),
        (&["--config", "none", "--tools", "tools"], "--config none: file: cannot be read"),
        (&["--config", "-", "--tools", "-"], "--tools -: file: is standard input, which another flag reads"),
        (&["--config", "config"], "--tools <FILE>"),
        (&["--config", "config", "--tools", "tools", "--clams", "claims"], "'--clams'"),
    ] {
        let (status, _, problem) = files.run(words);
        assert_eq!(status, Some(2), "{words:?}");
        assert!(problem.contains(said), "{words:?}: {problem}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let files = Files::new(&document("stdio", &json!({})), &json!({}), &tools(&["echo"]), &json!({}));
    for output in ["json", "table"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-runner"));
        command.args(["explain", "--config", "config", "--tools", "tools", "--output", output]);
        let ended = command.current_dir(files.0.path()).stdout(full).output().unwrap();
        let problem = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{problem}");
        assert!(problem.contains("--output -: answer: cannot be written"), "{problem}");
    }
}

/// The ConfigMaps that the operator writes for a golden directory, which keeps each RunConfig in a file of its own.
fn config_maps(golden: &Path) -> Vec<String> {
    const ELSEWHERE: &str = "(see the .runconfig.json file)";
    let objects = std::fs::read_to_string(golden.join("objects.yaml")).unwrap_or_default();
    let maps = objects.split("\n---\n").filter(|object| object.contains(ELSEWHERE));
    let whole = |map: &str| {
        let name = map.lines().find_map(|line| line.strip_prefix("  name: ")?.strip_suffix("-runconfig")).unwrap();
        let document = std::fs::read_to_string(golden.join(format!("{name}.runconfig.json"))).unwrap();
        map.replace(ELSEWHERE, &Value::from(document).to_string())
    };
    maps.map(whole).collect()
}

#[test]
fn every_config_map_of_the_operator_is_read() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator/tests/golden");
    let mut maps = 0;
    for golden in std::fs::read_dir(goldens).unwrap() {
        for map in config_maps(&golden.unwrap().path()) {
            maps += 1;
            let files = Files::new(&map, &json!({}), &tools(&["echo"]), &json!({}));
            let explained = files.explained(&[]);
            assert_eq!(explained["tools"][0]["serverName"], "echo", "{map}");
        }
    }
    assert!(maps > 10, "{maps} ConfigMaps");
}

#[tokio::test]
async fn explain_agrees_with_the_proxy_about_each_call() {
    let mut world = World::start(&EVERYDAY, json!({"tools_override": {"rm": {"name": "remove"}}})).await;
    let config = with_login(&EVERYDAY, json!({"tools_override": {"rm": {"name": "remove"}}}));
    let names = ["echo", "pay", "rm", "other"];
    let mut answers = Vec::new();
    for claims in [json!({"sub": "ann"}), json!({"sub": "olga", "groups": ["ops"]})] {
        let caller = world.caller(claims["sub"].as_str().unwrap(), claims.clone());
        for arguments in [json!({}), json!({"amount": 5}), json!({"amount": 500}), json!({"amount": "5"})] {
            let files = Files::new(&config, &claims, &tools(&names), &arguments);
            for name in ["echo", "pay", "remove", "other"] {
                let (_, got) = world.ask(&caller, &call(name, &arguments), DONE).await;
                let known = files.explained(&["--claims", "claims", "--tool", name, "--arguments", "arguments"]);
                let unknown = files.explained(&["--claims", "claims", "--tool", name]);
                let answer = |explained: &Value| explained["tools"][0]["call"]["answer"].as_str().unwrap().to_owned();
                let passes = if got.is_some() { "yes" } else { "no" };
                assert_eq!(answer(&known), passes, "{claims} {name} {arguments}");
                let unknown = answer(&unknown);
                assert!([passes, "dependsOn"].contains(&&*unknown), "{claims} {name} {arguments}: {unknown}");
                answers.push(unknown);
            }
        }
    }
    for answer in ["yes", "no", "dependsOn"] {
        assert!(answers.iter().any(|given| given == answer), "{answers:?}");
    }
}

/// The commands of the book's page are run on its own files.
#[test]
fn the_commands_of_the_page_are_taken_and_answer_as_it_shows() {
    let page = include_str!("../../../../docs/src/how-to/explain.md");
    let files = TempDir::new().unwrap();
    let block = |name: &str| {
        let (_, rest) =
            page.split_once(&format!("`{name}`:\n\n```")).unwrap_or_else(|| panic!("the page shows {name}"));
        rest.split_once('\n').unwrap().1.split_once("\n```").unwrap().0.to_owned()
    };
    for name in ["config.yaml", "claims.json", "tools.json", "arguments.json"] {
        std::fs::write(files.path().join(name), block(name)).unwrap();
    }
    let mut commands = 0;
    for shown in page.split("\n$ mcp-runner explain ").skip(1) {
        commands += 1;
        let (shown, _) = shown.split_once("```").unwrap();
        let (line, answer) = shown.split_once('\n').unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let (status, told, problem) = run(files.path(), &words);
        assert_eq!(status, Some(0), "{line}: {problem}");
        assert_eq!(told, answer, "{line}");
    }
    assert_eq!(commands, 3);
}
