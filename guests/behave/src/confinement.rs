//! What a guest finds when it looks around.

use std::hint::black_box;
use std::io::Read;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latent_sdk::Handled;

/// Number of variables and of arguments.
pub(crate) fn environment() -> (usize, usize) {
    (std::env::vars_os().count(), std::env::args_os().count())
}

/// Whether anything of the file system can be reached.
pub(crate) fn files() -> [bool; 4] {
    [
        std::fs::read_dir("/").is_ok(),
        std::fs::read("/etc/hostname").is_ok(),
        std::fs::write("out.txt", "x").is_ok(),
        std::fs::create_dir("d").is_ok(),
    ]
}

/// Whether anything of the network can be reached.
pub(crate) fn sockets() -> [bool; 4] {
    [
        TcpStream::connect("127.0.0.1:80").is_ok(),
        TcpListener::bind("127.0.0.1:0").is_ok(),
        UdpSocket::bind("127.0.0.1:0").is_ok(),
        "localhost:80".to_socket_addrs().is_ok(),
    ]
}

/// Bytes on standard input.
pub(crate) fn stdin() -> Option<usize> {
    std::io::stdin().read_to_end(&mut Vec::new()).ok()
}

/// Wall-clock milliseconds, and whether monotonic time goes on.
pub(crate) fn clocks() -> (u128, bool) {
    let (wall, start) = (SystemTime::now().duration_since(UNIX_EPOCH), Instant::now());
    (wall.unwrap_or_default().as_millis(), Instant::now() >= start)
}

pub(crate) fn random(bytes: u64) -> Vec<u8> {
    wasip2::random::random::get_random_bytes(bytes)
}

/// Wall-clock time.
pub(crate) fn wall_clock_micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

/// All that differs from run to run unless the host sees to it: random bytes of both kinds, the seed of hash maps, and the time of day.
pub(crate) fn chance() -> (Vec<u8>, Vec<u8>, (u64, u64), [u128; 3]) {
    use wasip2::random::{insecure::get_insecure_random_bytes, insecure_seed::insecure_seed};
    let times = [wall_clock_micros(), wall_clock_micros(), wall_clock_micros()];
    (random(8), get_insecure_random_bytes(8), insecure_seed(), times)
}

/// Takes random bytes in one call, and says nothing about them.
pub(crate) fn random_bytes(bytes: u64) -> Handled {
    black_box(random(bytes));
    Ok(())
}

pub(crate) fn sleep(millis: u64) -> Handled {
    std::thread::sleep(Duration::from_millis(millis));
    Ok(())
}
