//! The four exit statuses, decided in one place.

use std::process::ExitCode;

/// How a command ended. Scripts rely on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// 0: done.
    Done,
    /// 1: the operation failed; it certainly did not happen, or it was refused.
    Failed,
    /// 2: the command or the configuration is wrong; nothing was tried.
    Wrong,
    /// 3: the operation may have happened.
    Uncertain,
}

impl ExitStatus {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Wrong => 2,
            Self::Uncertain => 3,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}
