//! Submit and complete: a ticket for a result that another thread will deliver. It can be waited for by a thread or awaited by
//! a task; nothing is spawned for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct Slot<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

struct State<T> {
    value: Option<T>,
    listener: Listener<T>,
}

/// Who is told when the value arrives. A ticket has one owner, so there is one at most.
enum Listener<T> {
    Nobody,
    /// One that blocks in [`Ticket::wait`]. Waking nobody would be a call of the system all the same.
    Thread,
    Task(Waker),
    Receiver(Box<dyn FnOnce(T) + Send>),
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The guarded section cannot panic half-way, so a poisoned lock still guards a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving half: resolves once, to the completed value.
#[must_use = "a ticket is the only way to learn what became of the operation"]
pub struct Ticket<T>(Arc<Slot<T>>);

/// The delivering half. Dropping it without completing delivers the value given to [`Ticket::pair`], so a ticket never hangs.
pub struct Completer<T> {
    slot: Arc<Slot<T>>,
    if_abandoned: Option<T>,
}

impl<T> Ticket<T> {
    /// A ticket and its completer. `if_abandoned` is delivered when the completer is dropped unused.
    pub fn pair(if_abandoned: T) -> (Self, Completer<T>) {
        let slot = Arc::new(Slot { state: Mutex::new(State { value: None, listener: Listener::Nobody }), filled: Condvar::new() });
        (Self(Arc::clone(&slot)), Completer { slot, if_abandoned: Some(if_abandoned) })
    }

    /// A ticket whose value is already there.
    pub fn ready(value: T) -> Self {
        Self(Arc::new(Slot { state: Mutex::new(State { value: Some(value), listener: Listener::Nobody }), filled: Condvar::new() }))
    }

    /// Blocks the calling thread until the value is there. Not for async tasks: await the ticket instead.
    pub fn wait(self) -> T {
        let mut state = self.0.lock();
        loop {
            if let Some(value) = state.value.take() {
                return value;
            }
            state.listener = Listener::Thread;
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T: Send + 'static> Ticket<T> {
    /// A ticket for what `translate` makes of the value. `if_abandoned` as in [`Ticket::pair`].
    pub fn map_or<U: Send + 'static>(self, if_abandoned: U, translate: impl FnOnce(T) -> U + Send + 'static) -> Ticket<U> {
        let (ticket, completer) = Ticket::pair(if_abandoned);
        self.on_ready(move |value| completer.complete(translate(value)));
        ticket
    }

    /// Hands the value to `receive` when it is there: at once, or on the thread that completes it. `receive` must not block.
    pub fn on_ready(self, receive: impl FnOnce(T) + Send + 'static) {
        let mut state = self.0.lock();
        match state.value.take() {
            Some(value) => {
                drop(state);
                receive(value);
            }
            None => state.listener = Listener::Receiver(Box::new(receive)),
        }
    }
}

impl<T> Future for Ticket<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        state.listener = Listener::Task(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Completer<T> {
    /// Delivers the value.
    pub fn complete(mut self, value: T) {
        self.if_abandoned = None;
        self.fill(value);
    }

    fn fill(&self, value: T) {
        let mut state = self.slot.lock();
        // Whoever listens runs without the lock, so that it may use other tickets.
        match std::mem::replace(&mut state.listener, Listener::Nobody) {
            Listener::Receiver(receive) => {
                drop(state);
                receive(value);
            }
            listener => {
                state.value = Some(value);
                drop(state);
                match listener {
                    Listener::Thread => self.slot.filled.notify_one(),
                    Listener::Task(waker) => waker.wake(),
                    Listener::Nobody | Listener::Receiver(_) => {}
                }
            }
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(value) = self.if_abandoned.take() {
            self.fill(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Flag(std::sync::atomic::AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waiting_thread_gets_the_value() {
        let (ticket, completer) = Ticket::pair(0);
        let waiting = std::thread::spawn(move || ticket.wait());
        completer.complete(7);
        assert_eq!(waiting.join().unwrap(), 7);
    }

    #[test]
    fn a_thread_that_waits_for_what_a_task_awaited_gets_the_value() {
        let (mut ticket, completer) = Ticket::pair(0);
        let waker = Waker::from(Arc::new(Flag(false.into())));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        let waiting = std::thread::spawn(move || ticket.wait());
        completer.complete(7);
        assert_eq!(waiting.join().unwrap(), 7);
    }

    #[test]
    fn a_dropped_completer_delivers_the_abandoned_value() {
        let (ticket, completer) = Ticket::pair("abandoned");
        drop(completer);
        assert_eq!(ticket.wait(), "abandoned");
    }

    #[test]
    fn a_receiver_gets_the_value_now_or_later() {
        let (sender, received) = std::sync::mpsc::channel();
        let send = |sender: &std::sync::mpsc::Sender<u32>| {
            let sender = sender.clone();
            move |value| sender.send(value).unwrap()
        };
        Ticket::ready(1).on_ready(send(&sender));
        let (ticket, completer) = Ticket::pair(0);
        ticket.on_ready(send(&sender));
        completer.complete(2);
        let (ticket, completer) = Ticket::pair(3);
        ticket.on_ready(send(&sender));
        drop(completer);
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_mapped_ticket_gives_the_translation() {
        let (ticket, completer) = Ticket::pair(0);
        let mapped = ticket.map_or("abandoned".to_owned(), |value: i32| value.to_string());
        completer.complete(4);
        assert_eq!(mapped.wait(), "4");
    }

    #[test]
    fn a_task_is_woken_when_the_value_arrives() {
        let (mut ticket, completer) = Ticket::pair(0);
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(Arc::clone(&flag));
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut ticket).poll(&mut cx).is_pending());
        completer.complete(3);
        assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(Pin::new(&mut ticket).poll(&mut cx), Poll::Ready(3));
    }
}
