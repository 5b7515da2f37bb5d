#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| suite_tests::fuzz::run("blocks", data));
