//! Plain functions: called with values, woken by no event.

wit_bindgen::generate!({ world: "plain", path: "wit" });

use std::time::Duration;

use exports::demo::plain::shapes::{Colour, Guest as Shapes, Point, Rights, Shape};
use exports::demo::plain::work::Guest as Work;
use exports::demo::plain::worse::Guest as Worse;

struct Component;

impl Shapes for Component {
    fn boolean(value: bool) -> bool {
        value
    }

    fn narrow(a: u8, b: u16, c: u32, d: i8, e: i16, f: i32) -> (u8, u16, u32, i8, i16, i32) {
        (a, b, c, d, e, f)
    }

    fn wide(a: u64, b: i64) -> (u64, i64) {
        (a, b)
    }

    fn floats(a: f32, b: f64) -> (f32, f64) {
        (a, b)
    }

    fn text(a: char, b: String) -> (char, String) {
        (a, b)
    }

    fn bytes(value: Vec<u8>) -> Vec<u8> {
        value
    }

    fn points(value: Vec<Point>) -> Vec<Point> {
        value
    }

    fn shape_of(value: Shape) -> Shape {
        value
    }

    fn colour_of(value: Colour) -> Colour {
        value
    }

    fn rights_of(value: Rights) -> Rights {
        value
    }

    fn maybe(value: Option<Option<String>>) -> Option<Option<String>> {
        value
    }

    fn nested(value: Result<u32, String>) -> (Result<u32, String>,) {
        (value,)
    }
}

impl Work for Component {
    fn divide(a: i32, b: i32) -> Result<i32, String> {
        a.checked_div(b).ok_or_else(|| format!("{a} / {b}"))
    }

    fn nothing() {}

    fn refuse() -> Result<(), ()> {
        Err(())
    }

    fn strings(times: u32, bytes: u32) -> Vec<String> {
        (0..times).map(|_| "s".repeat(bytes as usize)).collect()
    }

    fn numbers(count: u32) -> Vec<u8> {
        vec![7; count as usize]
    }

    fn spin() {
        let mut n = 0_u64;
        loop {
            n = std::hint::black_box(n.wrapping_add(1));
        }
    }

    fn fail(why: String) {
        panic!("{why}");
    }

    fn announce(topic: String) -> Result<u64, String> {
        announced(topic, "from plain", "only")
    }

    fn derived() -> Result<String, String> {
        latent_sdk::context::derive().map_err(|error| error.to_string())
    }
}

impl Worse for Component {
    fn sleep(millis: u32) {
        std::thread::sleep(Duration::from_millis(millis.into()));
    }

    fn grow(bytes: u32) {
        let mut memory = vec![0_u8; bytes as usize];
        memory.iter_mut().step_by(4_096).for_each(|byte| *byte = 1);
        std::hint::black_box(memory);
    }

    fn announce_as(topic: String, key: String) -> Result<u64, String> {
        announced(topic, &key, &key)
    }

    fn in_steps(topic: String, name: String, millis: u32) {
        let step = |what: &str| {
            let step = format!("{name}:{what}");
            let event = latent_sdk::publish(&topic).text(step.as_str()).idempotency_key(step);
            event.send().expect("a step is published");
        };
        step("begun");
        Self::sleep(millis);
        step("done");
    }

    fn act(how: String) -> Result<u64, String> {
        match how.as_str() {
            "well" => {}
            "loop" => Self::spin(),
            "sleep" => Self::sleep(u32::MAX),
            "trap" => std::process::abort(),
            "grow" => Self::grow(1 << 30),
            _ => return announced("out".to_owned(), &how, &how),
        }
        Ok(0)
    }
}

fn announced(topic: String, text: &str, key: &str) -> Result<u64, String> {
    let event = latent_sdk::publish(topic).text(text).idempotency_key(key);
    event.send().map(|receipt| receipt.sequence).map_err(|error| error.to_string())
}

export!(Component);
