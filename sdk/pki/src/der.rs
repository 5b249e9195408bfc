//! The little DER that rcgen cannot write: a subject with the same attribute more than once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, SigningKey as _};

use crate::PkiError;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// id-at-organizationName, 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// Where the subject stands in a TBSCertificate: version, serial, algorithm, issuer, validity, subject (RFC 5280 §4.1).
const SUBJECT: usize = 5;

/// A Name with every organization and the common name, each in a set of its own.
pub(crate) fn name(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let attribute = |oid: &[u8], value: &str| {
        let pair = [tlv(OID, oid), tlv(UTF8_STRING, value.as_bytes())].concat();
        tlv(SET, &tlv(SEQUENCE, &pair))
    };
    let mut sets: Vec<u8> = organizations.iter().flat_map(|o| attribute(&ORGANIZATION, o)).collect();
    sets.extend(attribute(&COMMON_NAME, common_name));
    tlv(SEQUENCE, &sets)
}

/// The certificate with another subject, signed again by its issuer's key.
pub(crate) fn with_subject(certificate: &[u8], subject: &[u8], issuer: &KeyPair) -> Result<Vec<u8>, PkiError> {
    let broken = || PkiError::Certificate("the certificate is not DER of the expected shape".to_owned());
    let outer = elements(content(certificate).ok_or_else(broken)?).ok_or_else(broken)?;
    let [tbs, algorithm, _signature] = outer.as_slice() else { return Err(broken()) };
    let mut fields = elements(content(tbs).ok_or_else(broken)?).ok_or_else(broken)?;
    *fields.get_mut(SUBJECT).ok_or_else(broken)? = subject;
    let tbs = tlv(SEQUENCE, &fields.concat());
    let signature = issuer.sign(&tbs).map_err(|e| PkiError::Issue(Box::new(e)))?;
    // A bit string starts with its count of unused bits: none.
    let signature = tlv(BIT_STRING, &[&[0], signature.as_slice()].concat());
    Ok(tlv(SEQUENCE, &[tbs.as_slice(), algorithm, &signature].concat()))
}

/// PEM with lines of 64 characters (RFC 7468).
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + "-----END " + label + "-----\n"
}

/// Tag, length in the shortest form, value.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = value.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|b| **b == 0).count()..];
    match significant {
        [] => out.push(0),
        [one] if *one < 0x80 => out.push(*one),
        // At most eight bytes.
        many => {
            out.push(0x80 | u8::try_from(many.len()).unwrap_or(u8::MAX));
            out.extend(many);
        }
    }
    out.extend(value);
    out
}

/// The header's and the value's length of the element that `der` starts with.
fn measure(der: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*der.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let bytes = der.get(2..2 + (first & 0x7f))?;
    let length = bytes.iter().try_fold(0usize, |n, b| Some(n.checked_mul(256)? + usize::from(*b)))?;
    Some((2 + bytes.len(), length))
}

fn content(der: &[u8]) -> Option<&[u8]> {
    let (header, length) = measure(der)?;
    der.get(header..header.checked_add(length)?)
}

fn elements(mut der: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (header, length) = measure(der)?;
        let (element, rest) = der.split_at_checked(header.checked_add(length)?)?;
        found.push(element);
        der = rest;
    }
    Some(found)
}
