//! Runs a check with a bound on the memory that it takes.

use std::alloc::System;

use cap::Cap;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs the check. Whoever asks for much more memory than there is input gets none, and the program
/// ends.
pub fn bounded(check: fn(&[u8]), data: &[u8]) {
    let most = ALLOCATOR.allocated() + ROOM + data.len() * PER_BYTE;
    let _ = ALLOCATOR.set_limit(most);
    check(data);
    let _ = ALLOCATOR.set_limit(usize::MAX);
}

/// For buffers that are as large for little input: what a frame's length alone makes room for, and
/// what serde reserves before it has seen the elements, 1 MiB at each level.
const ROOM: usize = 48 << 20;
/// An input's byte can stand for a value of some dozens.
const PER_BYTE: usize = 1 << 10;
