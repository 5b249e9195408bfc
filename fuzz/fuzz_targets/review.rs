//! libFuzzer over the admission review codec; see `fuzz/run.sh`.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| portcullis_fuzz::review(body));
