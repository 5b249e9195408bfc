//! Mozilla's root certificates, as the file that Debian and distroless images have.

use std::io::{self, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Writes a PEM block per certificate (RFC 7468 §5).
///
/// They come from a crate, so `Cargo.lock` pins them for everyone who builds the commit; the certificates of a machine would
/// differ between machines. `cargo update -p webpki-root-certs` renews them.
pub fn write_roots(out: &mut impl Write) -> io::Result<()> {
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        writeln!(out, "-----BEGIN CERTIFICATE-----")?;
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        writeln!(out, "-----END CERTIFICATE-----")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};

    #[test]
    fn what_proxies_read_from_the_file_are_the_roots_of_the_crate() {
        let mut file = Vec::new();
        super::write_roots(&mut file).unwrap();
        let read: Vec<_> = CertificateDer::pem_slice_iter(&file).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, webpki_root_certs::TLS_SERVER_ROOT_CERTS);
        assert!(read.len() > 50, "{}", read.len());
    }
}
