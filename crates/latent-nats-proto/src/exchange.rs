//! What every exchange has in common for the shell that moves its bytes.

/// What an exchange is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The bytes of [`Exchange::outgoing`] are to be written.
    Write,
    /// Bytes of the peer are to be read.
    Read,
    /// Nothing: [`Exchange::finish`] has the outcome.
    Done,
}

/// What ended an exchange from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed the connection.
    PeerClosed,
    /// The transport failed.
    TransportFailed,
    /// The deadline passed.
    DeadlineExceeded,
    /// The caller does not want it any more.
    Cancelled,
}

/// One exchange on a [`crate::Link`].
pub trait Exchange {
    /// What it comes to.
    type Outcome;

    /// What it waits for now.
    fn want(&self) -> Want;

    /// The bytes not written yet, in order, for one vectored write.
    fn outgoing(&self) -> [&[u8]; 3];

    /// Called immediately before every attempt to hand outgoing bytes to the writer. For a publication this is the border of the possible
    /// write (D-06), whatever becomes of the attempt.
    fn offering(&mut self);

    /// How many of the outgoing bytes the writer took.
    fn wrote(&mut self, bytes: usize);

    /// Bytes of the peer, split in any way. Those beyond the end of the exchange stay in the link.
    fn received(&mut self, bytes: &[u8]);

    /// The exchange was ended from outside. An outcome that it already has stays.
    fn ended(&mut self, how: Ended);

    /// What it came to. Before [`Want::Done`] this is as if it had been cancelled.
    fn finish(self) -> Self::Outcome;
}

/// The bytes of `parts` behind the first `written`.
pub(crate) fn unwritten(parts: [&[u8]; 3], written: usize) -> [&[u8]; 3] {
    let mut left = written;
    parts.map(|part| {
        let gone = left.min(part.len());
        left -= gone;
        part.get(gone..).unwrap_or_default()
    })
}
