//! What a host must survive.

use std::hint::black_box;
use std::io::Write;

use latent_sdk::{Handled, Reject, log};

pub(crate) fn compute_for_ever() -> ! {
    let mut n = 0_u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

/// Deeper than any stack; the sum after the call keeps it from becoming a loop.
#[allow(unconditional_recursion, reason = "that is the point")]
pub(crate) fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(depth + 1) + frame[0]
}

/// Takes memory and touches every page of it.
pub(crate) fn allocate(bytes: u64) -> Handled {
    let mut memory = vec![0_u8; bytes as usize];
    memory.iter_mut().step_by(4_096).for_each(|byte| *byte = 1);
    black_box(memory);
    Ok(())
}

/// Asks for far too much, lives with the refusal, grows a little, and ends for a reason of its own.
pub(crate) fn allocate_and_recover() -> Handled {
    let refused = Vec::<u8>::new().try_reserve_exact(1 << 30).is_err();
    black_box(vec![1_u8; 300_000]);
    assert!(refused && black_box(false), "unrelated");
    Ok(())
}

pub(crate) fn log_flood(bytes: u64) -> Handled {
    for _ in 0..bytes / 100 {
        log::info("x".repeat(100));
    }
    Ok(())
}

pub(crate) fn stdout_flood(bytes: u64) -> Handled {
    let mut stdout = std::io::stdout().lock();
    for _ in 0..bytes / 100 {
        stdout.write_all(&[b'y'; 100]).map_err(|error| Reject::because(error.to_string()))?;
    }
    stdout.flush().map_err(|error| Reject::because(error.to_string()))
}

/// The cheapest lines there are.
pub(crate) fn empty_lines(count: u64) -> Handled {
    let mut stderr = std::io::stderr().lock();
    for _ in 0..count / 1_024 {
        stderr.write_all(&[b'\n'; 1_024]).map_err(|error| Reject::because(error.to_string()))?;
    }
    Ok(())
}

/// Holds timers of the host, which each cost it memory.
pub(crate) fn hold_streams(count: u64) -> Handled {
    let held: Vec<_> = (0..count).map(|_| wasip2::clocks::monotonic_clock::subscribe_duration(1)).collect();
    black_box(held);
    Ok(())
}
