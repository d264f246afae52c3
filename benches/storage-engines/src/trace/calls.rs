//! The lines of `strace -f -y`, as calls. Lines in, values out; what is no call of ours is left out.

use std::collections::HashMap;

/// One system call, or one end of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The thread.
    pub(super) thread: String,
    /// The call's name.
    pub(super) name: String,
    /// The path or pipe of its first argument, if that is a descriptor; of an `openat`, of its result.
    pub(super) target: String,
    /// Its arguments as text.
    pub(super) arguments: String,
    /// Which end of it.
    pub(super) moment: Moment,
}

/// A call that another thread interrupts in the trace has two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It began, and ends in a later line.
    Began,
    /// It began earlier, or at once, and ended.
    Ended { whole: bool, succeeded: bool },
}

/// The calls of a trace.
pub(super) fn parse(trace: &str) -> impl Iterator<Item = Call> + '_ {
    let mut unfinished = HashMap::new();
    trace.lines().filter_map(move |line| call(line, &mut unfinished))
}

fn call(line: &str, unfinished: &mut HashMap<String, Call>) -> Option<Call> {
    let (thread, rest) = line.split_once(' ')?;
    let rest = rest.trim_start();
    if rest.starts_with("<... ") {
        let begun = unfinished.remove(thread)?;
        let (_, result) = rest.rsplit_once(" = ")?;
        return Some(Call { moment: Moment::Ended { whole: false, succeeded: succeeded(result) }, ..begun });
    }
    let (name, rest) = rest.split_once('(')?;
    let begun = rest.strip_suffix(" <unfinished ...>");
    let (arguments, result) = match begun {
        Some(arguments) => (arguments, None),
        None => rest.rsplit_once(" = ").map(|(arguments, result)| (arguments, Some(result)))?,
    };
    let target = if name == "openat" { result.unwrap_or_default() } else { arguments };
    let moment = result.map_or(Moment::Began, |result| Moment::Ended { whole: true, succeeded: succeeded(result) });
    let target = target_of(target).unwrap_or_default().to_owned();
    let call = Call { thread: thread.to_owned(), name: name.to_owned(), target, arguments: arguments.to_owned(), moment };
    if result.is_none() {
        unfinished.insert(thread.to_owned(), call.clone());
    }
    Some(call)
}

fn succeeded(result: &str) -> bool {
    !result.trim_start().starts_with('-')
}

/// `4</path>, …` is `/path`.
fn target_of(text: &str) -> Option<&str> {
    let (descriptor, rest) = text.trim_start().split_once('<')?;
    descriptor.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)?.split('>').next()
}
