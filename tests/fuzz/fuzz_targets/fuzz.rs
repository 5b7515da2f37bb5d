//! Runs the target that `FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use suite_tests::fuzz::{self, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("`FUZZ_TARGET` names a target");
    fuzz::target_of(&name)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
