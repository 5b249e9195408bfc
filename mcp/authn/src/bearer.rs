//! The bearer token of a request (RFC 6750 §2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;
use memchr::memchr2;

use crate::refusal::Refusal;

/// The token in the one `Authorization` that there is. The scheme is blind to case (RFC 9110 §11.1), unlike ToolHive's.
pub(crate) fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|value| !value.is_empty()).ok_or(Refusal::NoHeader)?;
    // With two headers, this one need not be the one that the MCP server reads.
    if values.next().is_some() {
        return Err(Refusal::NotBearer);
    }
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Refusal::NotBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refusal::NotBearer);
    }
    match token.trim_matches(' ') {
        "" => Err(Refusal::Empty),
        token if memchr2(b' ', b'\t', token.as_bytes()).is_some() => Err(Refusal::NotBearer),
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
            (&[][..], Err(Refusal::NoHeader)),
            (&[""], Err(Refusal::NoHeader)),
            (&["Bearer"], Err(Refusal::NotBearer)),
            (&["Basic YTpi"], Err(Refusal::NotBearer)),
            (&["abc"], Err(Refusal::NotBearer)),
            (&["Bearer "], Err(Refusal::Empty)),
            (&["Bearer a b"], Err(Refusal::NotBearer)),
            (&["Bearer a", "Bearer a"], Err(Refusal::NotBearer)),
            (&["Bearer a", ""], Err(Refusal::NotBearer)),
            (&["Bearer\ta"], Err(Refusal::NotBearer)),
            (&["Bearer a\tb"], Err(Refusal::NotBearer)),
            (&["Bearer a, Bearer b"], Err(Refusal::NotBearer)),
            (&["Bearer a.b-c"], Ok("a.b-c")),
            (&["bEARER  a "], Ok("a")),
        ] {
            let values = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap()));
            assert_eq!(token(&values.collect::<HeaderMap>()), expected);
        }
        let opaque = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap())]);
        assert_eq!(token(&opaque), Err(Refusal::NotBearer));
    }
}
