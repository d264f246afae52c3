//! The heads of a log's partitions, and what is told of those that cannot be read.

use latent_bridge::cold::export::{AttestedHead, NO_SUCH_KEY};
use latent_core::Partition;

use super::Task;
use super::status::ArchivedLog;
use crate::control::Fault;
use crate::error::CliError;

/// Heads that an error names at most.
const NAMED_MAX: usize = 8;

/// A head that is there and could not be read.
pub(super) struct UnreadHead {
    pub(super) topic: String,
    pub(super) partition: Partition,
    fault: Fault,
}

impl UnreadHead {
    fn lacks_key(&self) -> bool {
        self.fault.message.ends_with(NO_SUCH_KEY)
    }
}

impl ArchivedLog {
    /// The heads of a topic's partitions. Those that cannot be read are put to `unread`, and the others go on.
    pub(super) fn heads(&self, topic: &str, partitions: u32, unread: &mut Vec<UnreadHead>) -> Vec<AttestedHead> {
        let mut heads = Vec::new();
        for partition in (0..partitions).map(Partition) {
            match self.bus.bus().archive_head(topic, partition) {
                Ok(head) => heads.extend(head),
                Err(error) => unread.push(UnreadHead { topic: topic.to_owned(), partition, fault: Fault::from(&error) }),
            }
        }
        heads
    }
}

/// Fails with all that could not be read, each with its reason; those that somebody can mend with a key come first.
pub(super) fn all_read(unread: &[UnreadHead]) -> Result<(), CliError> {
    let (mut sorted, others): (Vec<_>, Vec<_>) = unread.iter().partition(|head| head.lacks_key());
    sorted.extend(others);
    let Some(first) = sorted.first() else { return Ok(()) };
    let place = |head: &UnreadHead| format!("{}/p{}", head.topic, head.partition);
    let lines = sorted.iter().take(NAMED_MAX).map(|head| format!("{}: {}", place(head), head.fault.message));
    let (message, doing) = match unread.len() {
        1 => (first.fault.message.clone(), format!("reading the head of {}", place(first))),
        count => {
            let more = (count > NAMED_MAX).then(|| format!("and {} more", count - NAMED_MAX));
            (lines.chain(more).collect::<Vec<_>>().join("\n"), format!("reading the heads of {count} partitions"))
        }
    };
    let fault = if first.lacks_key() { Fault::passing(Task::LackingKey.kind(), message) } else { Fault { message, ..first.fault.clone() } };
    Err(CliError::Log { doing, fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_head_that_cannot_be_read_is_named_with_its_reason_up_to_a_bound_and_a_key_that_is_missing_is_the_step() {
        assert!(all_read(&[]).is_ok());
        let head = |n: u32, message: &str| {
            let fault = Fault::passing("backend", message.to_owned());
            UnreadHead { topic: "t".to_owned(), partition: Partition(n), fault }
        };
        let one = all_read(&[head(2, "damaged")]).unwrap_err();
        assert_eq!(
            (one.to_string(), one.why(), one.kind()),
            ("reading the head of t/p2 failed".to_owned(), "damaged".to_owned(), "backend")
        );
        let unknown = format!("it is proven with the control key ab, {NO_SUCH_KEY}");
        let many: Vec<_> = (0..9).map(|n| head(n, if n == 8 { &unknown } else { "damaged" })).collect();
        let told = all_read(&many).unwrap_err();
        assert_eq!((told.to_string(), told.kind()), ("reading the heads of 9 partitions failed".to_owned(), Task::LackingKey.kind()));
        let why = told.why();
        assert!(why.starts_with(&format!("t/p8: {unknown}\nt/p0: damaged\n")) && why.ends_with("t/p6: damaged\nand 1 more"), "{why}");
        assert!(told.next_step().starts_with("put the old key back at the end of control_key_files"), "{}", told.next_step());
    }
}
