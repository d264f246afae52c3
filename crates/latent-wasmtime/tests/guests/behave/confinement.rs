//! WASI is linked whole and confined: nothing of the machine is reached.

use std::sync::Arc;

use latent_core::{Clock, MonoTime, SystemClock, UnixMillis};

use crate::bench::Bench;

#[tokio::test]
async fn there_are_no_variables_and_no_arguments() {
    assert_eq!(Bench::behave().seen("environment").await, "(0, 0)");
}

#[tokio::test]
async fn no_file_can_be_listed_read_or_made() {
    assert_eq!(Bench::behave().seen("files").await, "[false, false, false, false]");
}

#[tokio::test]
async fn no_socket_can_be_opened_and_no_name_looked_up() {
    assert_eq!(Bench::behave().seen("sockets").await, "[false, false, false, false]");
}

#[tokio::test]
async fn standard_input_is_empty() {
    assert_eq!(Bench::behave().seen("stdin").await, "Some(0)");
}

#[tokio::test]
async fn the_clocks_of_a_guest_are_those_of_its_host() {
    /// Wall-clock time of its own, monotonic time of the machine.
    struct Fixed(SystemClock);
    impl Clock for Fixed {
        fn mono(&self) -> MonoTime {
            self.0.mono()
        }

        fn unix(&self) -> UnixMillis {
            UnixMillis(1_234_567)
        }
    }
    let mut bench = Bench { origin: None, ..Bench::behave() };
    bench.clock = Arc::new(Fixed(SystemClock::start()));
    assert_eq!(bench.seen("clocks").await, "(1234567, true)");
}

#[tokio::test]
async fn random_bytes_differ_from_run_to_run() {
    let bench = Bench { origin: None, ..Bench::behave() };
    assert_ne!(bench.seen("random").await, bench.seen("random").await);
}

#[tokio::test]
async fn a_short_sleep_ends_and_the_event_is_handled() {
    assert_eq!(Bench::behave().run("sleep:5").await.outcome.kind(), "success");
}
