//! libFuzzer over the conversion engine; see `fuzz/run.sh`.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| portcullis_fuzz::conversion(body));
