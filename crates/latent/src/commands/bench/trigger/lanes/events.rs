//! The events of the rows, as messages of a stream: records as the bus writes them, each under an id and a key of its own.

use std::cell::RefCell;

use super::super::super::publish::broken;
use super::super::pull::wire::Message;
use crate::error::CliError;

/// Different keys, so that many events of a partition can run at the same time.
const KEYS: u64 = 4_096;

/// Makes events that this broker has not seen.
pub(super) struct Events {
    run: String,
    next: RefCell<u64>,
}

impl Events {
    pub(super) fn new() -> Result<Self, CliError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| broken("choosing ids", &error))?;
        Ok(Self { run: format!("{:032x}", u128::from_be_bytes(random)), next: RefCell::default() })
    }

    /// The next one, on this subject.
    pub(super) fn message(&self, subject: String) -> Message {
        let number = self.next.replace_with(|number| *number + 1);
        let key = format!("acme/order-{:04}", number % KEYS);
        let headers =
            format!("NATS/1.0\r\nNats-Msg-Id: {}-{number}\r\nContent-Type: application/json\r\nLsf-Event-Key: {key}\r\n\r\n", self.run);
        let value = format!(
            "{{\"order\":{number},\"state\":\"paid\",\"customer\":\"c-{:08}\",\"items\":[{{\"sku\":\"A-17\",\"count\":2}},\
             {{\"sku\":\"B-4\",\"count\":1}}],\"total\":\"118.40\",\"currency\":\"EUR\",\"note\":\"leave it with the neighbour\"}}",
            number % 10_007
        );
        let body = format!("{{\"partition\":0,\"offset\":0,\"key\":\"{key}\",\"stored_at\":1764500000000,\"value\":{value}}}");
        Message { subject, headers, body }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use latent_bridge::nats_bus::read_record;

    use super::*;

    #[test]
    fn an_event_is_a_record_under_an_id_and_a_key_of_its_own() {
        let events = Events::new().unwrap();
        let [one, other] = [(), ()].map(|()| {
            let message = events.message("s.1".to_owned());
            read_record(message.headers.as_bytes(), &Bytes::from(message.body)).unwrap()
        });
        assert!(one.uid != other.uid && one.key != other.key && one.payload != other.payload);
        assert!((150..=256).contains(&one.payload.len()), "{}", one.payload.len());
        assert!(one.media_type.is_json());
    }
}
