//! libFuzzer over the loaders of certificates; see `fuzz/run.sh`.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| portcullis_fuzz::certificates(body));
