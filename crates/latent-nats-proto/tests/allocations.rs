//! Q-12, the protocol's part: a publication in steady state allocates nothing.
//!
//! A process of its own, because the allocator that counts is the process's.

#![allow(unsafe_code, reason = "an allocator cannot be written without it; this one counts and hands on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use latent_core::Attributes;
use latent_nats_proto::{Answer, Checkout, Credential, Exchange, Handshake, InstanceInbox, Link, Publication, Publish, Want};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the promises of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of this thread while `action` runs.
fn allocations(action: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    action();
    ALLOCATIONS.get() - before
}

fn write(exchange: &mut impl Exchange) {
    while exchange.want() == Want::Write {
        exchange.offering();
        exchange.wrote(exchange.outgoing().iter().map(|part| part.len()).sum());
    }
}

const INFO: &[u8] = b"INFO {\"headers\":true,\"max_payload\":1048576,\"connect_urls\":[\"10.0.0.1:4222\"]}\r\n";

fn established() -> Link {
    let mut link = Link::new(&InstanceInbox::new([0; 16]), 1);
    let mut handshake = Handshake::begin(&mut link, Credential::Token(b"token"));
    handshake.received(INFO);
    write(&mut handshake);
    handshake.received(b"PONG\r\n");
    assert_eq!(handshake.finish(), Ok(()));
    link
}

/// Checks the link and publishes on it, with what a broker sends in between.
fn publish(link: &mut Link, publication: &Publication<'_>, reply: &[u8]) {
    let mut checkout = Checkout::begin(link);
    write(&mut checkout);
    checkout.received(b"PING\r\nPONG\r\n");
    write(&mut checkout);
    assert_eq!(checkout.finish(), Ok(()));
    let Ok(mut publish) = Publish::begin(link, publication) else { unreachable!("the link was checked") };
    write(&mut publish);
    publish.received(b"PING\r\n");
    write(&mut publish);
    publish.received(INFO);
    publish.received(reply);
    assert!(matches!(publish.finish().outcome, Answer::Receipt { sequence: 7, duplicate: true }));
}

#[test]
fn a_publication_in_steady_state_allocates_nothing() {
    let pairs = (0..8).map(|n| (format!("name-{n}"), "v".repeat(200))).collect();
    let attributes = Attributes::parse(pairs).unwrap();
    let payload = vec![b'p'; 262_144];
    let publication = Publication {
        subject: "orders.new",
        expected_stream: "ORD",
        message_id: "lsf-1",
        content_type: Some("application/json"),
        key: Some("key"),
        attributes: &attributes,
        payload: &payload,
    };
    let mut link = established();
    let body = r#"{"stream":"ORD","seq":7,"duplicate": true,"x":{"y":[1]}}"#;
    let replies: Vec<String> =
        (1..=100).map(|operation| format!("MSG _INBOX.LSF.{}.1.{operation} 1 {}\r\n{body}\r\n", "0".repeat(32), body.len())).collect();
    for reply in &replies {
        assert_eq!(allocations(|| publish(&mut link, &publication, reply.as_bytes())), 0);
    }
    // The counter counts.
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0_u8; 64]))), 1);
}
