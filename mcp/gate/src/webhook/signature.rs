//! The signature of a call, with a key from a file that may change (toolhive-runner §3.6).

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use aws_lc_rs::hmac;
use mcp_http::file::{Stamp, read_file};

/// A file that holds the key of a webhook's signatures; its bytes are the key, a newline at the end included.
pub(crate) struct HmacFile {
    path: PathBuf,
    current: ArcSwapOption<(Stamp, HmacKey)>,
}

/// A key that signs.
#[derive(Clone)]
pub(crate) struct HmacKey(hmac::Key);

impl HmacFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, current: ArcSwapOption::empty() }
    }

    /// The key that is in the file now. Costs one look at the file's metadata as long as it did not change.
    pub(crate) fn key(&self) -> Result<HmacKey, String> {
        // The stamp is taken first: should the file change in between, the next call sees a newer stamp and reads again.
        let stamp = Stamp::of(&self.path)?;
        if let Some(current) = &*self.current.load()
            && current.0 == stamp
        {
            return Ok(current.1.clone());
        }
        let key = HmacKey(hmac::Key::new(hmac::HMAC_SHA256, &read_file(&self.path)?));
        self.current.store(Some(Arc::new((stamp, key.clone()))));
        Ok(key)
    }
}

impl HmacKey {
    /// `sha256=` and the signature of `TIMESTAMP.BODY` in lower-case hex (toolhive-runner §3.6).
    pub(crate) fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut context = hmac::Context::with_key(&self.0);
        context.update(timestamp.as_bytes());
        context.update(b".");
        context.update(body);
        let mut text = String::with_capacity(71);
        text.push_str("sha256=");
        for byte in context.sign().as_ref() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(HEX[usize::from(digit)]));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_signature_is_the_one_that_receivers_of_the_original_compute() {
        let body = concat!(
            r#"{"version":"v0.1.0","uid":"7b0f6f0e-6c0a-4f0c-9c57-3f6a3f0b1d11","timestamp":"2026-08-21T10:26:00."#,
            r#"123456789Z","principal":{"sub":"user-42"},"mcp_request":{"jsonrpc":"2.0","id":7,"method":"tools/call","#,
            r#""params":{"name":"echo","arguments":{"text":"hi"}}},"context":{"server_name":"yardstick","source_ip":"#,
            r#""10.244.0.9:51874","transport":"streamable-http"}}"#,
        );
        assert_eq!(body.len(), 351);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hmac");
        fs::write(&path, "s3cr3t").unwrap();
        assert_eq!(
            HmacFile::new(path).key().unwrap().sign("1787307960", body.as_bytes()),
            "sha256=77f23f8efba6d35fe0c78e52006396c67f912f45c3b75acfcb58c356bac08191"
        );
    }

    #[test]
    fn a_key_is_read_again_after_a_write_a_rename_and_a_swap_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("hmac"), version).unwrap();
        }
        std::os::unix::fs::symlink("v1", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/hmac", at("hmac")).unwrap();
        let file = HmacFile::new(at("hmac"));
        let sign = || file.key().unwrap().sign("0", b"");
        let first = sign();
        assert_eq!(sign(), first);
        std::os::unix::fs::symlink("v2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        let second = sign();
        assert_ne!(second, first);
        fs::write(at("v2/hmac"), "v1").unwrap();
        assert_eq!(sign(), first);
        fs::write(at("v2/new"), "v2").unwrap();
        fs::rename(at("v2/new"), at("v2/hmac")).unwrap();
        assert_eq!(sign(), second);
        fs::write(at("v2/hmac"), "").unwrap();
        assert!(file.key().is_err_and(|problem| problem.ends_with("is empty")));
        fs::remove_file(at("v2/hmac")).unwrap();
        assert!(file.key().is_err_and(|problem| problem.contains("cannot be read")));
    }
}
