//! Texts of somebody else's, as they stand in events.

/// The most bytes of a text of somebody else's.
const LONGEST: usize = 256;

/// The beginning of a text of somebody else's.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}

/// A URI without its user and what follows its path, which may be secrets.
pub(super) fn without_secrets(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let uri = &uri[..end];
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    let user = authority.rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[user..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_uri_is_in_a_name() {
        for (uri, name) in [
            ("file:///a/b", "file:///a/b"),
            ("https://u:p4ss@h/x?token=t#f", "https://h/x"),
            ("https://u:p@ss@h:8/x", "https://h:8/x"),
            ("note:1?key=k", "note:1"),
            ("https://h", "https://h"),
        ] {
            assert_eq!(without_secrets(uri), name, "{uri}");
        }
    }
}
