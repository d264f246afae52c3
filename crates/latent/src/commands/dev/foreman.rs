//! What is to be done when files change. Pure: looks and answers in, work out; it reads no clock and no file.
//!
//! ```text
//! a look differs from what was done ─▶ settling ─ no change for `dev_quiet_millis` ─▶ work ─▶ answer
//!         ▲                                                                                     │
//!         └──────────────── what changed meanwhile differs again ◀──────────────────────────────┘
//! ```
//! Invariants: what is handed out as work was seen by the last look, so a file that changes while the work is under way differs at the
//! next look and is worked on again; what failed is not tried again before a file changes; settings are surveyed before anything is
//! built, and builds come before anything is taken in, so one change of many files is one reload. The driver does one piece of work at
//! a time: look, poll, do, answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use latent_core::MonoTime;

use crate::limits;

/// A file as the system describes it. When all of it is the same, so is the content, as far as cargo goes: whoever sets a file's time
/// back by hand is not noticed. The time of the last change of *anything* is no part of it, because cargo adds and removes links to a
/// component that stays what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode.
    pub(super) place: (u64, u64),
    /// Length.
    pub(super) bytes: u64,
    /// When its content changed, in seconds and nanoseconds.
    pub(super) modified: (i64, i64),
}

/// Files and their stamps at one time.
pub(super) type Snapshot = BTreeMap<PathBuf, Stamp>;

/// What is watched as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The configuration and what it names beside components.
    Settings,
    /// The sources of the project that makes this component.
    Project(PathBuf),
    /// The files of all components.
    Components,
}

/// Everything that is watched, as it was seen at one time.
pub(super) type Look = BTreeMap<Subject, Snapshot>;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// Read the settings and find out which projects there are.
    Survey,
    /// Build the project that makes this component.
    Build {
        /// The component.
        component: PathBuf,
        /// What differs from the last build, in the order of names; empty for the first.
        changed: Vec<PathBuf>,
    },
    /// Put in force what settings and components are now: a start the first time, then a reload.
    TakeIn,
}

/// What came of taking something in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakenIn {
    /// It is in force, or was refused for good: nothing is to be done before a file changes.
    Answered,
    /// Somebody else is doing the same now.
    Busy,
}

/// Made by cargo beside the sources, and changed by the very build that it is a source of.
const LOCK_FILE: &str = "Cargo.lock";

#[derive(Debug)]
struct Watched {
    seen: Snapshot,
    /// When `seen` became what it is; `None` when it was so at the first look.
    changed_at: Option<MonoTime>,
    /// What the last work took as it was.
    done: Option<Snapshot>,
    /// The next look shows what a build made of the lock file.
    lock_is_ours: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Foreman {
    subjects: BTreeMap<Subject, Watched>,
    /// Something that was built or surveyed is to be put in force, not before this time.
    take_in: Option<MonoTime>,
}

impl Watched {
    fn is_due(&self, now: MonoTime) -> bool {
        let quiet = Duration::from_millis(limits::DEV_QUIET_MILLIS.default);
        let settled = self.changed_at.is_none_or(|at| now.since(at) >= quiet);
        settled && self.done.as_ref() != Some(&self.seen)
    }

    fn begin(&mut self) -> Vec<PathBuf> {
        let changed = self.done.as_ref().map(|done| differences(done, &self.seen)).unwrap_or_default();
        self.done = Some(self.seen.clone());
        changed
    }

    fn see(&mut self, now: MonoTime, seen: Snapshot) {
        if self.seen != seen {
            self.seen = seen;
            self.changed_at = Some(now);
        }
        if std::mem::take(&mut self.lock_is_ours)
            && let Some(done) = &mut self.done
        {
            done.retain(|path, _| !is_lock(path));
            done.extend(self.seen.iter().filter(|(path, _)| is_lock(path)).map(|(path, stamp)| (path.clone(), *stamp)));
        }
    }
}

fn is_lock(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == LOCK_FILE)
}

/// Files that are new, gone or not the same.
fn differences(before: &Snapshot, after: &Snapshot) -> Vec<PathBuf> {
    let other = after.iter().filter(|(path, stamp)| before.get(*path) != Some(*stamp));
    let gone = before.iter().filter(|(path, _)| !after.contains_key(*path));
    let all: BTreeSet<_> = other.chain(gone).map(|(path, _)| path.clone()).collect();
    all.into_iter().collect()
}

impl Foreman {
    /// Nothing seen and nothing done: the first work is to survey the settings.
    pub(super) fn new() -> Self {
        Self { subjects: BTreeMap::new(), take_in: None }
    }

    /// What is watched now looks like this. A subject that is not in `look` any more is forgotten.
    pub(super) fn handle_look(&mut self, now: MonoTime, look: Look) {
        self.subjects.retain(|subject, _| look.contains_key(subject));
        for (subject, seen) in look {
            match self.subjects.get_mut(&subject) {
                Some(watched) => watched.see(now, seen),
                None => {
                    self.subjects.insert(subject, Watched { seen, changed_at: None, done: None, lock_is_ours: false });
                }
            }
        }
    }

    /// The settings were read. What they say now is to be put in force, after what is new was built.
    pub(super) fn handle_surveyed(&mut self, now: MonoTime) {
        self.take_in = Some(now);
    }

    /// A build ended well: its component is to be put in force.
    pub(super) fn handle_built(&mut self, now: MonoTime, component: &Path) {
        self.handle_build_failed(component);
        self.take_in = Some(now);
    }

    /// A build failed. Nothing is done before a file changes.
    pub(super) fn handle_build_failed(&mut self, component: &Path) {
        if let Some(watched) = self.subjects.get_mut(&Subject::Project(component.to_owned())) {
            watched.lock_is_ours = true;
        }
    }

    /// Something was to be put in force.
    pub(super) fn handle_taken_in(&mut self, now: MonoTime, taken_in: TakenIn) {
        if taken_in == TakenIn::Busy {
            self.take_in = Some(now.plus_millis(limits::DEV_AGAIN_MILLIS.default));
        }
    }

    /// The next piece of work, if there is one now. To be called after a look, and again after its answer and another look.
    pub(super) fn poll(&mut self, now: MonoTime) -> Option<Work> {
        if let Some(settings) = self.subjects.get_mut(&Subject::Settings).filter(|settings| settings.is_due(now)) {
            settings.begin();
            return Some(Work::Survey);
        }
        for (subject, watched) in &mut self.subjects {
            if let Subject::Project(component) = subject
                && watched.is_due(now)
            {
                return Some(Work::Build { component: component.clone(), changed: watched.begin() });
            }
        }
        let components = self.subjects.get_mut(&Subject::Components);
        // Components that nobody put in force yet wait for the settings that name them.
        let by_themselves = components.as_ref().is_some_and(|components| components.done.is_some() && components.is_due(now));
        if self.take_in.is_some_and(|at| at <= now) || by_themselves {
            self.take_in = None;
            if let Some(components) = components {
                components.begin();
            }
            return Some(Work::TakeIn);
        }
        None
    }
}

#[cfg(test)]
mod tests;
