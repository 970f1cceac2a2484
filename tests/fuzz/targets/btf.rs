//! BTF of a kernel: malformed data give an error of one line, and looking up a type terminates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncore_trace::open::KernelTypes;

fuzz_target!(|input: &[u8]| {
    let Ok(types) = KernelTypes::parse(input.to_vec()) else { return };
    for name in ["pair", "pair_t", "op", ""] {
        for member in ["first", "second", "absent"] {
            if let Err(error) = types.member_offset(name, member) {
                assert!(!format!("{error:#}").contains('\n'));
            }
        }
        types.enumerator_value(name, "write").ok();
    }
    types.has_tracepoint("x");
});
