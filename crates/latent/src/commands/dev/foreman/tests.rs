use super::*;

const A: &str = "a/target/a.wasm";
const B: &str = "b/target/b.wasm";

/// Files of a subject with a number that stands for their content.
type Files<'f> = &'f [(&'f str, u64)];

/// Virtual time and files by hand.
struct Desk {
    foreman: Foreman,
    millis: u64,
    look: Look,
}

fn stamp(content: u64) -> Stamp {
    Stamp { place: (1, 1), bytes: content, modified: (0, 0) }
}

fn snapshot(files: Files<'_>) -> Snapshot {
    files.iter().map(|(path, content)| (PathBuf::from(path), stamp(*content))).collect()
}

fn project(component: &str) -> Subject {
    Subject::Project(component.into())
}

fn build(component: &str, changed: &[&str]) -> Option<Work> {
    Some(Work::Build { component: component.into(), changed: changed.iter().map(PathBuf::from).collect() })
}

impl Desk {
    /// Settings, one project and its component, all of it new.
    fn new() -> Self {
        let mut desk = Self { foreman: Foreman::new(), millis: 1_000, look: Look::new() };
        desk.set(Subject::Settings, &[("latent.toml", 1)]);
        desk
    }

    /// As after a start: surveyed, built and taken in.
    fn running() -> Self {
        let mut desk = Self::new();
        assert_eq!(desk.work(0), Some(Work::Survey));
        desk.foreman.handle_surveyed(desk.now());
        desk.set(project(A), &[("a/lib.rs", 1), ("a/Cargo.lock", 1)]);
        desk.set(Subject::Components, &[(A, 1)]);
        assert_eq!(desk.work(0), build(A, &[]));
        desk.built(A);
        assert_eq!(desk.work(0), Some(Work::TakeIn));
        desk.taken_in();
        assert_eq!(desk.work(10_000), None);
        desk
    }

    fn now(&self) -> MonoTime {
        MonoTime::from_millis(self.millis)
    }

    fn set(&mut self, subject: Subject, files: Files<'_>) {
        self.look.insert(subject, snapshot(files));
    }

    /// Looks after this time and asks for work.
    fn work(&mut self, millis: u64) -> Option<Work> {
        self.millis += millis;
        self.foreman.handle_look(self.now(), self.look.clone());
        self.foreman.poll(self.now())
    }

    fn built(&mut self, component: &str) {
        self.foreman.handle_built(self.now(), Path::new(component));
    }

    fn taken_in(&mut self) {
        self.foreman.handle_taken_in(self.now(), TakenIn::Answered);
    }

    /// Lets a change settle.
    fn settled(&mut self) -> Option<Work> {
        assert_eq!(self.work(0), None);
        self.work(limits::DEV_QUIET_MILLIS.default)
    }
}

#[test]
fn a_change_is_built_and_taken_in_when_it_has_settled_for_exactly_the_quiet_time() {
    let quiet = limits::DEV_QUIET_MILLIS.default;
    let mut desk = Desk::running();
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.work(0), None);
    assert_eq!(desk.work(quiet - 1), None);
    // One more change begins the time again.
    desk.set(project(A), &[("a/lib.rs", 3), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.work(1), None);
    assert_eq!(desk.work(quiet - 1), None);
    assert_eq!(desk.work(1), build(A, &["a/lib.rs"]));
    desk.built(A);
    desk.set(Subject::Components, &[(A, 2)]);
    assert_eq!(desk.work(5_000), Some(Work::TakeIn), "at once: nobody else writes what was built");
    desk.taken_in();
    assert_eq!(desk.work(5_000), None, "and once");
}

#[test]
fn what_changes_during_a_build_is_built_after_what_was_built_is_taken_in() {
    let mut desk = Desk::running();
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), build(A, &["a/lib.rs"]));
    desk.set(project(A), &[("a/lib.rs", 3), ("a/Cargo.lock", 1), ("a/new.rs", 1)]);
    desk.built(A);
    assert_eq!(desk.work(3_000), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(limits::DEV_QUIET_MILLIS.default), build(A, &["a/lib.rs", "a/new.rs"]));
    desk.built(A);
    assert_eq!(desk.work(0), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(5_000), None);
}

#[test]
fn a_failed_build_is_tried_again_only_after_a_change_and_nothing_is_taken_in() {
    let mut desk = Desk::running();
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), build(A, &["a/lib.rs"]));
    desk.foreman.handle_build_failed(Path::new(A));
    assert_eq!(desk.work(60_000), None);
    desk.set(project(A), &[("a/lib.rs", 1), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), build(A, &["a/lib.rs"]), "back to what it was is a change too");
    desk.built(A);
    assert_eq!(desk.work(0), Some(Work::TakeIn));
}

#[test]
fn a_lock_file_that_the_build_wrote_is_no_change_and_one_that_a_person_wrote_is() {
    let mut desk = Desk::running();
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), build(A, &["a/lib.rs"]));
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 2)]);
    desk.built(A);
    assert_eq!(desk.work(0), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(5_000), None);
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 3)]);
    assert_eq!(desk.settled(), build(A, &["a/Cargo.lock"]));
}

#[test]
fn a_component_that_somebody_else_writes_is_taken_in_when_it_has_settled() {
    let mut desk = Desk::running();
    desk.set(Subject::Components, &[(A, 7)]);
    assert_eq!(desk.settled(), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(5_000), None);
    desk.set(Subject::Components, &[]);
    assert_eq!(desk.settled(), Some(Work::TakeIn), "one that is gone is worth saying");
}

#[test]
fn changed_settings_are_surveyed_then_new_projects_built_then_all_is_taken_in_once() {
    let mut desk = Desk::running();
    desk.set(Subject::Settings, &[("latent.toml", 2)]);
    desk.set(project(A), &[("a/lib.rs", 9), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), Some(Work::Survey));
    desk.foreman.handle_surveyed(desk.now());
    desk.set(project(B), &[("b/lib.rs", 1)]);
    desk.set(Subject::Components, &[(A, 1), (B, 1)]);
    assert_eq!(desk.work(0), build(A, &["a/lib.rs"]));
    desk.foreman.handle_build_failed(Path::new(A));
    assert_eq!(desk.work(0), build(B, &[]));
    desk.built(B);
    assert_eq!(desk.work(0), Some(Work::TakeIn), "the old component of the project that failed is still one");
    desk.taken_in();
    assert_eq!(desk.work(5_000), None);
}

#[test]
fn settings_that_cannot_be_read_are_read_again_after_a_change_and_nothing_else_waits_for_them() {
    let mut desk = Desk::running();
    desk.set(Subject::Settings, &[("latent.toml", 2)]);
    assert_eq!(desk.settled(), Some(Work::Survey));
    // No answer: the survey failed.
    assert_eq!(desk.work(60_000), None);
    desk.set(project(A), &[("a/lib.rs", 2), ("a/Cargo.lock", 1)]);
    assert_eq!(desk.settled(), build(A, &["a/lib.rs"]));
    desk.built(A);
    assert_eq!(desk.work(0), Some(Work::TakeIn));
}

#[test]
fn a_busy_node_is_asked_again_after_exactly_its_pause() {
    let again = limits::DEV_AGAIN_MILLIS.default;
    let mut desk = Desk::running();
    desk.set(Subject::Components, &[(A, 7)]);
    assert_eq!(desk.settled(), Some(Work::TakeIn));
    desk.foreman.handle_taken_in(desk.now(), TakenIn::Busy);
    assert_eq!(desk.work(again - 1), None);
    assert_eq!(desk.work(1), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(again), None);
}

#[test]
fn a_project_that_no_service_names_any_more_is_not_built() {
    let mut desk = Desk::running();
    desk.set(Subject::Settings, &[("latent.toml", 2)]);
    assert_eq!(desk.settled(), Some(Work::Survey));
    desk.look.remove(&project(A));
    desk.set(Subject::Components, &[]);
    desk.foreman.handle_surveyed(desk.now());
    assert_eq!(desk.work(0), Some(Work::TakeIn));
    desk.taken_in();
    assert_eq!(desk.work(5_000), None);
}
