//! Resource URIs that no server takes for another one (toolhive-0.63 §5.2).
//!
//! Policies compare URIs as text, and many servers look a resource up by what a URL parser makes of its URI. So only a URI that such a parser leaves as it
//! is may be asked for. What is no URI for one parser at least is refused, too.

/// Bytes that may stand in a URI beside letters and digits. A fragment, an address in brackets and everything that is not ASCII are left out.
const PLAIN: &[u8] = b"-._~!$&'()*+,;=:@/?%";
/// Bytes that may stand in a user's name or password beside letters and digits: parsers escape the others.
const USER: &[u8] = b"-._~!$&'()*+,%";
/// The schemes whose hosts and paths the URL standard rewrites, with their ports.
const SPECIAL: [(&str, &str); 6] =
    [("http", "80"), ("https", "443"), ("ws", "80"), ("wss", "443"), ("ftp", "21"), ("file", "")];

type Check = Result<(), &'static str>;

fn must(is: bool, problem: &'static str) -> Check {
    if is { Ok(()) } else { Err(problem) }
}

/// Refuses a URI that is not in the one form that parsers leave alone. The error never holds the URI.
pub(crate) fn check(uri: &str) -> Check {
    must(
        uri.bytes().all(|byte| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)),
        "its URI has a character that must be escaped",
    )?;
    check_escapes(uri)?;
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte))
    };
    let (scheme, rest) =
        uri.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).ok_or("its URI has no scheme in lower case")?;
    let special = SPECIAL.iter().find(|(name, _)| *name == scheme).map(|(_, port)| *port);

    let (hierarchy, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(hierarchy) => {
            let (authority, path) = hierarchy.split_at(hierarchy.find('/').unwrap_or(hierarchy.len()));
            (Some(authority), path)
        }
        None => (None, hierarchy),
    };
    must(path.split('/').all(|segment| segment != "." && segment != ".."), "its URI has the segment . or ..")?;
    authority.map_or(Ok(()), |authority| check_authority(scheme, special, authority))?;
    let Some(_) = special else { return Ok(()) };
    must(!query.contains('\''), "its URI has an apostrophe in the query")?;
    match (scheme, authority) {
        ("file", Some(host)) => check_file(host, path),
        (_, Some(host)) => must(!host.is_empty() && !path.is_empty(), "its URI lacks a host or a path"),
        (_, None) => Err("its URI lacks a host"),
    }
}

/// Refuses a template of URIs with a space or a control character. Servers compare templates as text.
pub(crate) fn check_template(template: &str) -> Check {
    must(!template.bytes().any(|byte| byte <= b' ' || byte == 0x7f), "its template has a space or a control character")
}

/// Escapes are in capitals, and of bytes that need one.
fn check_escapes(uri: &str) -> Check {
    uri.split('%').skip(1).try_for_each(|rest| {
        let digits =
            rest.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let needed = byte.is_some_and(|byte| !byte.is_ascii_alphanumeric() && !b"-._~".contains(&byte));
        must(needed, "its URI has an escape that is not in capitals, or not needed")
    })
}

fn check_authority(scheme: &str, special: Option<&str>, authority: &str) -> Check {
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    if let Some(user) = user {
        let (name, password) = user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
        let is_plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || USER.contains(&byte))
        };
        let sound = scheme != "file" && !place.is_empty() && is_plain(name) && password.is_none_or(is_plain);
        must(sound, "its URI has a user that parsers rewrite")?;
    }
    let (host, port) = place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
    if let Some(port) = port {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let sound = digits && port.parse::<u16>().is_ok() && special != Some(port) && !host.is_empty();
        must(sound, "its URI has a port that parsers rewrite")?;
    }
    if host.is_empty() { Ok(()) } else { check_host(host, special.is_some()) }
}

fn check_host(host: &str, special: bool) -> Check {
    let is_label = |label: &str| {
        let edge = |c: char| c == '-';
        let is_sound = |byte: u8| {
            byte.is_ascii_lowercase()
                || byte.is_ascii_digit()
                || b"_-".contains(&byte)
                || !special && byte.is_ascii_uppercase()
        };
        !label.is_empty() && !label.starts_with(edge) && !label.ends_with(edge) && label.bytes().all(is_sound)
    };
    let puny = |label: &str| special && label.starts_with("xn--");
    must(host.split('.').all(|label| is_label(label) && !puny(label)), "its URI has a host that parsers rewrite")?;
    let last = host.rsplit('.').next().unwrap_or_default();
    // Parsers take these for addresses, in forms of which one is left alone.
    let is_number = special && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"));
    must(!is_number || host.parse::<std::net::Ipv4Addr>().is_ok(), "its URI has an address that parsers rewrite")
}

fn check_file(host: &str, path: &str) -> Check {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    let is_drive =
        |first: &str| first.len() == 2 && first.ends_with(':') && first.starts_with(|c: char| c.is_ascii_alphabetic());
    let sound = host != "localhost"
        && !host.contains(':')
        && !path.starts_with("//")
        && first.is_some_and(|first| !first.contains(':') || is_drive(first) && host.is_empty());
    must(sound, "its URI is no file:///PATH that parsers leave alone")
}
