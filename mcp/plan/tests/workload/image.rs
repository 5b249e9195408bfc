//! References of images as container runtimes read them.

use mcp_plan::image::{is_reference, is_same, program};

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
fn a_mirror_has_the_same_image_and_another_path_has_not() {
    let [one, two] = [1, 2].map(|digit: u8| format!("sha256:{}", digit.to_string().repeat(64)));
    let tagged = "ghcr.io/team/mcp-runner:1.0".to_owned();
    let pinned = format!("ghcr.io/team/mcp-runner@{one}");
    let both = format!("ghcr.io/team/mcp-runner:1.0@{one}");
    let cases = [
        (&tagged, tagged.clone(), true),
        (&tagged, "mirror.local:5000/team/mcp-runner:1.0".to_owned(), true),
        (&tagged, "mirror.local/ghcr.io/team/mcp-runner:1.0".to_owned(), true),
        (&tagged, "team/mcp-runner:1.0".to_owned(), true),
        (&tagged, both.clone(), true),
        (&tagged, pinned.clone(), true),
        (&tagged, "ghcr.io/team/mcp-runner:1.1".to_owned(), false),
        (&tagged, "ghcr.io/team/mcp-runner".to_owned(), false),
        (&tagged, format!("ghcr.io/team/mcp-runner:1.1@{one}"), false),
        (&tagged, "ghcr.io/evil/mcp-runner:1.0".to_owned(), false),
        (&tagged, "ghcr.io/other-team/mcp-runner:1.0".to_owned(), false),
        (&tagged, "ghcr.io/team/mcp-runner/evil:1.0".to_owned(), false),
        (&tagged, String::new(), false),
        (&pinned, format!("mirror.local/team/mcp-runner@{one}"), true),
        (&pinned, format!("mirror.local/team/mcp-runner:any@{one}"), true),
        (&pinned, format!("ghcr.io/team/mcp-runner@{two}"), false),
        (&pinned, tagged.clone(), false),
        (&both, tagged.clone(), false),
    ];
    for (asked, found, same) in cases {
        assert_eq!(is_same(asked, &found), same, "{asked} and {found}");
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
