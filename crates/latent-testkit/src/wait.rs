//! Waiting for something that can be seen. Tests must not sleep and hope, so the only pause between two looks is here.

use std::time::{Duration, Instant};

/// Against hanging only: nothing a test waits for takes anywhere near this long.
pub(crate) const HANG_LIMIT: Duration = Duration::from_secs(120);
/// How often it is looked. It bounds only how late a change is noticed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `look` says yes.
///
/// # Panics
/// When it has not said so in two minutes: `awaited` names what was waited for.
#[track_caller]
pub fn wait_until(awaited: &str, look: impl FnMut() -> bool) {
    let seen = looked_until(HANG_LIMIT, look);
    assert!(seen, "waited {HANG_LIMIT:?} in vain: {awaited}");
}

/// Asks until `ask` has something to say, on a runtime and in its real time: for a test whose other tasks must go on meanwhile.
///
/// # Panics
/// When it has nothing in two minutes: `awaited` names what was waited for.
#[cfg(feature = "broker")]
pub async fn until_some<T, F: Future<Output = Option<T>>>(awaited: &str, mut ask: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(start.elapsed() < HANG_LIMIT, "waited {HANG_LIMIT:?} in vain: {awaited}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks at least once, then again until `limit` has passed. True when `look` said yes.
pub(crate) fn looked_until(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if look() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_until_it_sees() {
        let mut looks = 0;
        wait_until("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn it_gives_up_at_its_limit_after_at_least_one_look() {
        let mut looks = 0;
        assert!(!looked_until(Duration::ZERO, || {
            looks += 1;
            false
        }));
        assert_eq!(looks, 1);
    }
}
