//! libFuzzer over the lease decision; see `fuzz/run.sh`.

#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| portcullis_fuzz::lease(body));
