//! References of images as container runtimes read them.

use mcp_plan::image::{is_prefix, is_reference, is_same, program};

#[test]
fn images_are_referred_to_in_the_grammar_of_registries() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let with_digest =
        [format!("x@{digest}"), format!("ghcr.io/a/b:v1@{digest}"), format!("x@a1+b.c-d_e:{}", "F".repeat(32))];
    let long = ["a".repeat(255), format!("x:{}", "t".repeat(128))];
    let fine = [
        // ToolHive's examples and goldens.
        "ghcr.io/stackloklabs/gofetch/server",
        "ghcr.io/stackloklabs/gofetch/server:latest",
        "ghcr.io/stackloklabs/mkp/server",
        "ghcr.io/stackloklabs/yardstick/yardstick-server:1.1.1",
        "ghcr.io/github/github-mcp-server",
        "docker.io/mcp/fetch",
        "mcp/context7:latest",
        "localhost/everything:v1.8.0",
        "example.com/fetch:1",
        "x",
        "a:1",
        "busybox:1.36.1-musl",
        "localhost:5000/a",
        "Registry:5000/a",
        "UPPER.example/a:V1.0_x",
        "127.0.0.1:5000/a/b/c:latest",
        "[2001:db8::1]/a",
        "[::1]:5000/a",
        "a__b/c.d/e---f/g_h",
        "x:_",
    ];
    for text in fine.into_iter().chain(with_digest.iter().chain(&long).map(String::as_str)) {
        assert!(is_reference(text), "{text}");
    }
    let short = format!("x@sha256:{}", "0".repeat(31));
    let long = ["a".repeat(256), format!("x:{}", "t".repeat(129))];
    let wrong = [
        "",
        " ",
        "a b",
        " a",
        "a\n",
        "-",
        "--",
        "-x",
        "--backend=http://169.254.169.254",
        "--debug",
        "-a/b",
        "-a.b/c",
        "--allow-endpoint-cidr=0.0.0.0/0",
        "a/-b",
        "a/b-",
        "_a",
        ".a",
        "a.",
        "a..b",
        "a___b",
        "a._b",
        "A",
        "a/B",
        "ü",
        "a//b",
        "/a",
        "a/",
        "a:",
        "a:-t",
        "a:.t",
        "a:b:c",
        "a:t/b",
        "a:5000x/b",
        "a:/b",
        "http://a/b",
        "a?b",
        "a=b",
        "[::1]",
        "[]/a",
        "[::g]/a",
        "a-.b/c",
        "@",
        "a@",
        "a@sha256",
        "a@sha256:",
        "a@1x:00000000000000000000000000000000",
        "a@sha256:zz345678901234567890123456789012",
        "$(HOME)",
        "a\0",
    ];
    for text in wrong.into_iter().chain(long.iter().chain([&short]).map(String::as_str)) {
        assert!(!is_reference(text), "{text:?}");
    }
}

#[test]
fn an_image_is_the_same_by_digest_or_by_tag_in_a_mirror() {
    let [one, two] = [1, 2].map(|digit: u8| format!("sha256:{}", digit.to_string().repeat(64)));
    let mirrors = ["mirror.local:5000", "harbor.example/ghcr"].map(str::to_owned);
    let tagged = "ghcr.io/team/mcp-runner:1.0".to_owned();
    let pinned = format!("ghcr.io/team/mcp-runner@{one}");
    let both = format!("ghcr.io/team/mcp-runner:1.0@{one}");
    let cases = [
        (&tagged, tagged.clone(), true),
        (&tagged, both.clone(), true),
        (&tagged, pinned.clone(), true),
        (&tagged, "mirror.local:5000/team/mcp-runner:1.0".to_owned(), true),
        (&tagged, "mirror.local:5000/ghcr.io/team/mcp-runner:1.0".to_owned(), true),
        (&tagged, "harbor.example/ghcr/team/mcp-runner:1.0".to_owned(), true),
        (&tagged, format!("harbor.example/ghcr/team/mcp-runner:1.0@{two}"), true),
        // In a registry that nobody named, anybody may have put anything under that tag or path.
        (&tagged, "evil.example/team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "evil.example/ghcr.io/team/mcp-runner:1.0".to_owned(), false),
        (&tagged, format!("evil.example/team/mcp-runner@{one}"), false),
        (&tagged, format!("evil.example/x/team/mcp-runner:1.0@{one}"), false),
        (&tagged, "team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "harbor.example/evil/team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "harbor.example/ghcr/evil/team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "mirror.local:5000.evil.example/team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "ghcr.io/team/mcp-runner:1.1".to_owned(), false),
        (&tagged, "ghcr.io/team/mcp-runner".to_owned(), false),
        (&tagged, format!("ghcr.io/team/mcp-runner:1.1@{one}"), false),
        (&tagged, "ghcr.io/evil/mcp-runner:1.0".to_owned(), false),
        (&tagged, "ghcr.io/team/mcp-runner/evil:1.0".to_owned(), false),
        (&tagged, String::new(), false),
        (&pinned, format!("anywhere.example/team/mcp-runner@{one}"), true),
        (&pinned, format!("anywhere.example/team/mcp-runner:any@{one}"), true),
        (&pinned, format!("ghcr.io/team/mcp-runner@{two}"), false),
        (&pinned, tagged.clone(), false),
        (&both, tagged.clone(), false),
    ];
    for (asked, found, same) in cases {
        assert_eq!(is_same(asked, &found, &mirrors), same, "{asked} and {found}");
    }
}

#[test]
fn a_mirror_is_a_registry_or_a_path_in_one() {
    for text in ["mirror.local", "mirror.local:5000", "localhost:5000/a", "harbor.example/proxy/ghcr.io", "[::1]:5000"]
    {
        assert!(is_prefix(text), "{text}");
    }
    let digest = format!("harbor.example/a@sha256:{}", "0".repeat(64));
    for text in ["", "/", "mirror.local/", "https://mirror.local", "mirror.local/a:1", "mirror.local/*", "a b", &digest]
    {
        assert!(!is_prefix(text), "{text}");
    }
}

#[test]
fn the_program_is_named_in_images_of_this_platform_alone() {
    let own =
        ["localhost/portcullis/mcp-runner:0.1.0", "mcp-runner", "r:5000/a/b/mcp-runner@sha256:0", "r:5000/mcp-runner"];
    for image in own {
        assert_eq!(program(image), Some("/mcp-runner"), "{image}");
    }
    for image in ["ghcr.io/stacklok/toolhive/proxyrunner:latest", "r/mcp-runner/x:1", "r/not-mcp-runner:1", ""] {
        assert_eq!(program(image), None, "{image}");
    }
}
