//! The bearer token of a request (RFC 6750 §2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;
use memchr::memchr2;

/// Why a request has no bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBearer {
    /// It has no `Authorization`.
    Missing,
    /// Its `Authorization` is not one bearer token.
    Malformed,
    /// Its bearer token is empty.
    Empty,
}

/// The token in the one `Authorization` that there is. The scheme is blind to case (RFC 9110 §11.1), unlike ToolHive's.
///
/// # Errors
/// When there is none, or more than one.
pub fn bearer_token(headers: &HeaderMap) -> Result<&str, NoBearer> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|value| !value.is_empty()).ok_or(NoBearer::Missing)?;
    // With two headers, this one need not be the one that the MCP server reads.
    if values.next().is_some() {
        return Err(NoBearer::Malformed);
    }
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(NoBearer::Malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(NoBearer::Malformed);
    }
    match token.trim_matches(' ') {
        "" => Err(NoBearer::Empty),
        token if memchr2(b' ', b'\t', token.as_bytes()).is_some() => Err(NoBearer::Malformed),
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_request_has_one_bearer_token_or_is_told_what_it_lacks() {
        for (values, expected) in [
            (&[][..], Err(NoBearer::Missing)),
            (&[""], Err(NoBearer::Missing)),
            (&["Bearer"], Err(NoBearer::Malformed)),
            (&["Basic YTpi"], Err(NoBearer::Malformed)),
            (&["abc"], Err(NoBearer::Malformed)),
            (&["Bearer "], Err(NoBearer::Empty)),
            (&["Bearer a b"], Err(NoBearer::Malformed)),
            (&["Bearer a", "Bearer a"], Err(NoBearer::Malformed)),
            (&["Bearer a", ""], Err(NoBearer::Malformed)),
            (&["Bearer\ta"], Err(NoBearer::Malformed)),
            (&["Bearer a\tb"], Err(NoBearer::Malformed)),
            (&["Bearer a, Bearer b"], Err(NoBearer::Malformed)),
            (&["Bearer a.b-c"], Ok("a.b-c")),
            (&["bEARER  a "], Ok("a")),
        ] {
            let values = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap()));
            assert_eq!(bearer_token(&values.collect::<HeaderMap>()), expected);
        }
        let opaque = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap())]);
        assert_eq!(bearer_token(&opaque), Err(NoBearer::Malformed));
    }
}
