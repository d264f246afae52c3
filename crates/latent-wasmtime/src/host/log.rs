//! `latent:log`: lines for the activation's log.

use crate::activation_log::LogLevel;
use crate::bindings::latent::log::log::{Host, Level};
use crate::store::StoreData;

impl Host for StoreData {
    fn write(&mut self, level: Level, message: String) {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.log.lock().write_line(level, &message);
    }
}
