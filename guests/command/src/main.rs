//! A component that exports `wasi:cli/run` and no handler: a program where a function was expected.

fn main() {
    println!("a program, not a function");
}
