//! Giving memory back to the system after work that needed much of it once.
//!
//! Reading a configuration of a megabyte leaves some twenty times that in the allocator, in pieces between what stays. The system's
//! allocator keeps them for later; a node that then sleeps has no later.

/// Returns whole free pages of the allocator to the system, where the allocator can do that when asked.
pub(super) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the one way to ask the system's allocator; no library offers it without unsafe code")]
mod glibc {
    // SAFETY: the declaration is that of malloc_trim(3). It takes any number, may be called at any time from any thread, and touches
    // no memory that is in use.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> i32;
    }

    pub(super) fn trim() {
        // Whether anything could be returned changes nothing.
        let _ = malloc_trim(0);
    }
}
