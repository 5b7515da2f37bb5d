//! Parse, check, write again, parse again, compare.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| suite_tests::fuzz::container(data));
