//! Which entries go when the cache is full. Pure.

use std::time::SystemTime;

/// A file of the cache, as its directory shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) used: SystemTime,
    pub(super) standing: Standing,
}

/// How much an entry is worth to the one that asks. In the order in which entries go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Compiled for another engine version or configuration.
    OtherEngine,
    /// Usable now.
    Current,
    /// Being written; takes room and stays.
    Unfinished,
}

/// The entries to remove so that all others fit into `bytes_max`: those of other engines first, then the longest unused. Names decide
/// between equals, so that two processes choose the same.
pub(super) fn victims(mut held: Vec<Held>, bytes_max: u64) -> Vec<Held> {
    let mut bytes = held.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes));
    held.retain(|entry| entry.standing != Standing::Unfinished);
    held.sort_by(|a, b| (a.standing, a.used, &a.name).cmp(&(b.standing, b.used, &b.name)));
    let mut gone = 0;
    while bytes > bytes_max && gone < held.len() {
        bytes = bytes.saturating_sub(held[gone].bytes);
        gone += 1;
    }
    held.truncate(gone);
    held
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn held(name: &str, bytes: u64, used: u64, standing: Standing) -> Held {
        Held { name: name.to_owned(), bytes, used: SystemTime::UNIX_EPOCH + Duration::from_secs(used), standing }
    }

    fn names(held: Vec<Held>, bytes_max: u64) -> String {
        victims(held, bytes_max).into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn as_little_goes_as_makes_room_at_the_edge_of_the_bound() {
        let all = || vec![held("b", 10, 2, Standing::Current), held("a", 10, 1, Standing::Current), held("c", 10, 3, Standing::Current)];
        for (bytes_max, gone) in [(31, ""), (30, ""), (29, "a"), (20, "a"), (19, "ab"), (0, "abc")] {
            assert_eq!(names(all(), bytes_max), gone, "{bytes_max}");
        }
        assert_eq!(names(Vec::new(), 0), "");
    }

    #[test]
    fn entries_of_other_engines_go_first_whenever_they_were_used() {
        let all =
            vec![held("a", 10, 1, Standing::Current), held("b", 10, 9, Standing::OtherEngine), held("c", 10, 8, Standing::OtherEngine)];
        assert_eq!(names(all.clone(), 20), "c");
        assert_eq!(names(all, 5), "cba");
    }

    #[test]
    fn what_is_being_written_takes_room_and_stays() {
        let all = vec![held("a", 10, 2, Standing::Current), held("b", 10, 1, Standing::Unfinished)];
        assert_eq!(names(all, 15), "a");
    }

    #[test]
    fn sizes_beyond_any_disk_are_no_overflow() {
        let all = vec![held("a", u64::MAX, 1, Standing::Current), held("b", u64::MAX, 2, Standing::Current)];
        assert_eq!(names(all, u64::MAX), "");
    }
}
