//! A handler that does what its event's payload says, well or badly: `verb` or `verb:argument:…`.
//!
//! What a guest sees is reported as the reason of a rejection, because that is what a host test can read.

mod confinement;
mod hostile;
mod witness;

use std::fmt::Debug;

use latent_sdk::{Event, Failure, Handled, Reject, Retry, context, log, publish};

latent_sdk::handler!(handle);

fn handle(event: Event) -> Handled {
    let text = event.text()?.to_owned();
    let (verb, rest) = text.split_once(':').unwrap_or((&text, ""));
    match verb {
        "ok" => Ok(()),
        "reject" => Err(Reject::because(rest)),
        "retry" => retry(rest),
        "see-event" => saw(&event),
        "publish" => publish_once(rest),
        "publish-or-fail" => Ok(publish(rest).send().map(drop)?),
        "publish-many" => publish_many(rest),
        "publish-then-trap" => publish_then_trap(rest),
        "publish-bytes" => publish_bytes(rest),
        "publish-content" => publish_content(&event, rest),
        "witness" => witness::witness(&event, rest),
        "derive" => saw([context::derive(), context::derive(), context::derive_label("a"), context::derive_label("")]),
        "context" => saw((context::activation_id(), context::trace(), context::tenant())),
        "remaining" => remaining(),
        "log" => log_lines(),
        "log-flood" => hostile::log_flood(number(rest)?),
        "empty-lines" => hostile::empty_lines(number(rest)?),
        "stdout-flood" => hostile::stdout_flood(number(rest)?),
        "trap" => std::process::abort(),
        "panic" => panic!("{rest}"),
        "exit" => std::process::exit(number(rest)? as i32),
        "loop" => hostile::compute_for_ever(),
        "recurse" => saw(hostile::recurse(1)),
        "alloc" => hostile::allocate(number(rest)?),
        "alloc-and-recover" => hostile::allocate_and_recover(),
        "streams" => hostile::hold_streams(number(rest)?),
        "sleep" => confinement::sleep(number(rest)?),
        "environment" => saw(confinement::environment()),
        "files" => saw(confinement::files()),
        "sockets" => saw(confinement::sockets()),
        "stdin" => saw(confinement::stdin()),
        "clocks" => saw(confinement::clocks()),
        "random" => saw(confinement::random(16)),
        "chance" => saw(confinement::chance()),
        "random-bytes" => confinement::random_bytes(number(rest)?),
        unknown => Err(Reject::because(format!("unknown verb {unknown:?}"))),
    }
}

/// Reports what was seen.
fn saw(what: impl Debug) -> Handled {
    Err(Reject::because(format!("{what:?}")))
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|error| Reject::because(format!("{text:?}: {error}")))
}

fn retry(rest: &str) -> Handled {
    match rest.split_once(':') {
        Some((millis, reason)) => Err(Retry::after_millis(number(millis)?, reason)),
        None => Err(Retry::because(rest)),
    }
}

/// `topic:key:idempotency-key`, the last two of them optional.
fn publish_once(rest: &str) -> Handled {
    let mut parts = rest.split(':');
    let mut event = publish(parts.next().unwrap_or_default()).text("from behave").attribute("Kind", "test");
    if let Some(key) = parts.next() {
        event = event.key(key);
    }
    if let Some(key) = parts.next() {
        event = event.idempotency_key(key);
    }
    saw(event.send())
}

/// `topic:count`: reports each answer.
fn publish_many(rest: &str) -> Handled {
    let (topic, count) = rest.split_once(':').unwrap_or((rest, "1"));
    let answers = (0..number(count)?).map(|_| publish(topic).bytes([1]).send().map(|receipt| receipt.sequence));
    saw(answers.collect::<Vec<_>>())
}

/// `topic`: has its receipt and traps.
fn publish_then_trap(topic: &str) -> Handled {
    publish(topic).text("from behave").send()?;
    std::process::abort()
}

/// `topic:bytes`: one payload of that size.
fn publish_bytes(rest: &str) -> Handled {
    let (topic, bytes) = rest.split_once(':').unwrap_or((rest, "0"));
    saw(publish(topic).bytes(vec![7; number(bytes)? as usize]).send().map(|receipt| receipt.sequence))
}

/// `topic:source`: one payload under a derived key, which is the same each time, or is not.
fn publish_content(event: &Event, rest: &str) -> Handled {
    let (topic, source) = rest.split_once(':').unwrap_or((rest, "fixed"));
    let content = match source {
        "random" => format!("{:?}", confinement::random(16)),
        "time" => format!("{:?}", confinement::wall_clock_micros()),
        "delivery" => event.delivery_count.to_string(),
        _ => "fixed".to_owned(),
    };
    saw(publish(topic).text(content).send().map(|receipt| receipt.duplicate))
}

fn remaining() -> Handled {
    log::info("0123456789");
    let left = context::remaining();
    saw((left.fuel, left.wall_time.as_millis(), left.outbound_requests, left.log_bytes))
}

/// One line from each source, and one that tries to forge another.
fn log_lines() -> Handled {
    log::debug("one");
    println!("two");
    log::warn!("{}", "three");
    eprintln!("four");
    log::error("five\nerror: forged \u{1b}[31m");
    Ok(())
}
