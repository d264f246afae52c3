//! What is logged of a connection: its loss, its return, and in between a line a minute with how often it was tried. A broker that takes
//! connections only to end them, or refuses one thing after the other, makes a few lines and then one a minute. Pure: it is told of time.

use std::time::{Duration, Instant};

use async_nats::{Event, ServerError};

use crate::nats_bus::words::told;

/// Lines of one kind that may come at once.
const AT_ONCE: u32 = 5;
/// After that, one in this time.
const PAUSE: Duration = Duration::from_secs(60);

/// A line of the log. `untold`: how often the same happened before without a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Connected,
    Lost { untold: u64 },
    Back { away: Duration, attempts: u64, untold: u64 },
    StillAway { away: Duration, attempts: u64, problem: String },
    Problem { problem: String, untold: u64 },
    CredentialsRefused { untold: u64 },
    Refused { problem: String, untold: u64 },
    Slow { subscription: u64, untold: u64 },
    Stopping,
    Closed,
}

/// Lines of one kind.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Option<Instant>,
    untold: u64,
}

impl Allowance {
    const fn new() -> Self {
        Self { left: AT_ONCE, since: None, untold: 0 }
    }

    /// How many went untold before this one; `None`: this one goes untold, too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = self.since.map_or(0, |since| now.saturating_duration_since(since).as_secs() / PAUSE.as_secs());
        if self.since.is_none() || passed > 0 {
            self.left = self.left.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX)).min(AT_ONCE);
            self.since = Some(now);
        }
        if self.left == 0 {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Telling {
    away: Option<Away>,
    lost: Allowance,
    back: Allowance,
    problems: Allowance,
    credentials: Allowance,
    refusals: Allowance,
    slow: Allowance,
}

/// A connection that was lost.
#[derive(Debug)]
struct Away {
    since: Instant,
    told: Instant,
    attempts: u64,
}

impl Telling {
    pub(super) const fn new() -> Self {
        const NEW: Allowance = Allowance::new();
        Self { away: None, lost: NEW, back: NEW, problems: NEW, credentials: NEW, refusals: NEW, slow: NEW }
    }

    /// What to log of an event, if anything.
    pub(super) fn hear(&mut self, event: &Event, now: Instant) -> Option<Line> {
        match event {
            Event::Connected => self.connected(now),
            Event::Disconnected => {
                self.away.get_or_insert(Away { since: now, told: now, attempts: 0 });
                self.lost.take(now).map(|untold| Line::Lost { untold })
            }
            Event::ServerError(ServerError::AuthorizationViolation) => {
                self.credentials.take(now).map(|untold| Line::CredentialsRefused { untold })
            }
            Event::ServerError(error) => {
                let problem = told(error);
                self.refusals.take(now).map(|untold| Line::Refused { problem, untold })
            }
            Event::ClientError(error) => self.problem(&error.to_string(), now),
            Event::SlowConsumer(subscription) => self.slow.take(now).map(|untold| Line::Slow { subscription: *subscription, untold }),
            Event::LameDuckMode => Some(Line::Stopping),
            Event::Draining => None,
            Event::Closed => Some(Line::Closed),
        }
    }

    fn connected(&mut self, now: Instant) -> Option<Line> {
        let Some(Away { since, attempts, .. }) = self.away.take() else { return Some(Line::Connected) };
        let away = now.saturating_duration_since(since);
        self.back.take(now).map(|untold| Line::Back { away, attempts, untold })
    }

    /// While there is no connection, each attempt to make one fails with a problem; that there is none was told.
    fn problem(&mut self, problem: &str, now: Instant) -> Option<Line> {
        let problem = told(problem);
        let Some(away) = &mut self.away else { return self.problems.take(now).map(|untold| Line::Problem { problem, untold }) };
        away.attempts = away.attempts.saturating_add(1);
        if now.saturating_duration_since(away.told) < PAUSE {
            return None;
        }
        away.told = now;
        Some(Line::StillAway { away: now.saturating_duration_since(away.since), attempts: away.attempts, problem })
    }
}

impl Line {
    pub(super) fn log(&self, servers: &str) {
        match self {
            Self::Connected => tracing::info!(servers, "connected to the broker"),
            Self::Lost { untold } => tracing::warn!(servers, untold, "the connection to the broker is lost; it is made again"),
            Self::Back { away, attempts, untold } => {
                tracing::warn!(servers, away_millis = millis(*away), attempts, untold, "connected to the broker again");
            }
            Self::StillAway { away, attempts, problem } => {
                tracing::warn!(servers, away_millis = millis(*away), attempts, problem, "there is still no connection to the broker");
            }
            Self::Problem { problem, untold } => {
                tracing::warn!(servers, problem, untold, "the connection to the broker has a problem");
            }
            Self::CredentialsRefused { untold } => tracing::error!(servers, untold, "the broker refuses the credentials"),
            Self::Refused { problem, untold } => tracing::warn!(servers, problem, untold, "the broker refuses something"),
            Self::Slow { subscription, untold } => {
                tracing::warn!(servers, subscription, untold, "the broker sends faster than it is read");
            }
            Self::Stopping => tracing::warn!(servers, "the broker is about to stop"),
            Self::Closed => tracing::info!(servers, "the connection to the broker is closed"),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use async_nats::ClientError;

    use super::*;

    fn attempt() -> Event {
        Event::ClientError(ClientError::Other("IO error".to_owned()))
    }

    #[test]
    fn an_outage_is_its_loss_its_return_and_a_line_a_minute() {
        let (mut telling, begin) = (Telling::new(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(telling.hear(&Event::Connected, begin), Some(Line::Connected));
        assert_eq!(telling.hear(&Event::Disconnected, at(1)), Some(Line::Lost { untold: 0 }));
        let told: Vec<_> = (1..=150).filter_map(|second| telling.hear(&attempt(), at(second))).collect();
        let minutes: Vec<_> = told
            .iter()
            .map(|line| match line {
                Line::StillAway { away, attempts, problem } => (away.as_secs(), *attempts, problem.contains("IO error")),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(minutes, [(60, 61, true), (120, 121, true)]);
        let back = Line::Back { away: Duration::from_secs(150), attempts: 150, untold: 0 };
        assert_eq!(telling.hear(&Event::Connected, at(151)), Some(back));
        assert!(matches!(telling.hear(&attempt(), at(152)), Some(Line::Problem { untold: 0, .. })), "there is a connection");
    }

    #[test]
    fn what_comes_again_and_again_is_told_a_few_times_and_then_once_a_minute_with_its_number() {
        let (mut telling, begin) = (Telling::new(), Instant::now());
        let refused = || Event::ServerError(ServerError::AuthorizationViolation);
        let mut told = Vec::new();
        for second in 0..200 {
            let now = begin + Duration::from_secs(second);
            if let Some(Line::CredentialsRefused { untold }) = telling.hear(&refused(), now) {
                told.push((second, untold));
            }
            // The broker takes the connection and ends it.
            let lines = [telling.hear(&Event::Disconnected, now), telling.hear(&Event::Connected, now)];
            assert_eq!(lines.iter().flatten().count(), if told.last().is_some_and(|(last, _)| *last == second) { 2 } else { 0 });
        }
        assert_eq!(told, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (60, 55), (120, 59), (180, 59)]);
    }

    #[test]
    fn words_of_the_peer_move_no_cursor() {
        let line = Telling::new().hear(&Event::ServerError(ServerError::Other("a\u{1b}[2Jb\r\n".to_owned())), Instant::now());
        let Some(Line::Refused { problem, .. }) = line else { panic!("{line:?}") };
        assert!(problem.contains(r"a\u{1b}[2Jb") && !problem.chars().any(char::is_control), "{problem:?}");
    }
}
