#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skyward_fuzz::bounded(skyward_core::fuzzing::metadata, data));
