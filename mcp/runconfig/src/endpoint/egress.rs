//! The proxy of an installation through which https servers are called.

use http::Uri;

/// Hosts that are called directly unless the installation says otherwise: this machine, and the Services of the cluster.
pub const DIRECT: &str = "localhost,127.0.0.0/8,::1,.svc,.svc.cluster.local";

/// A proxy that is asked for a tunnel (`CONNECT`) to each https server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The proxy.
    pub proxy: Uri,
    /// The hosts that are called directly, by the rules of `NO_PROXY`: names with their subdomains, addresses, networks and `*`, with
    /// commas.
    pub direct: String,
}

impl Egress {
    /// Reads the URL of a proxy.
    ///
    /// # Errors
    /// The text is no such URL; the message says what to write.
    pub fn proxy(text: &str) -> Result<Uri, String> {
        let url = text.parse::<Uri>().ok().filter(|url| {
            let bare = url.path_and_query().is_none_or(|path| path == "/");
            url.scheme_str() == Some("http")
                && bare
                && url.port_u16().is_some()
                && url.host().is_some_and(|it| !it.is_empty())
        });
        match url {
            // Everybody who may read pods would read them.
            Some(url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
                Err("has a user name in it, and would show it in every pod; use a proxy that asks for none".to_owned())
            }
            Some(url) => Ok(url),
            None => Err(format!(
                "{text:?} is not the URL of an HTTP proxy; write one such as http://proxy.example.com:3128"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_proxy_has_a_host_and_a_port_and_nothing_more() {
        for good in ["http://proxy.example.com:3128", "http://10.0.0.1:3128/", "http://[fd00::1]:3128"] {
            assert!(Egress::proxy(good).is_ok(), "{good}");
        }
        let bad = [
            "",
            "proxy:3128",
            "https://proxy:3128",
            "http://proxy",
            "http://:3128",
            "http://proxy:3128/path",
            "socks5://a:1",
        ];
        for bad in bad {
            assert!(Egress::proxy(bad).unwrap_err().contains("http://proxy.example.com:3128"), "{bad}");
        }
        let secret = Egress::proxy("http://me:hunter2@proxy:3128").unwrap_err();
        assert!(secret.contains("user name") && !secret.contains("hunter2"), "{secret}");
    }
}
