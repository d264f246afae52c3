//! A handler that publishes its event's payload to the topic `out`, one receipt after the other, as often as the event's key says. Each
//! has a key of its own, derived from the event. What is measured with it is what one publication costs a function; `latent bench publish`
//! carries a built copy.

use latent_sdk::{Event, Handled, Reject, publish};

latent_sdk::handler!(handle);

fn handle(event: Event) -> Handled {
    let Event { key, media_type, payload, .. } = event;
    let times = key.unwrap_or_default();
    let times: u32 = times.parse().map_err(|error| Reject::because(format!("the key {times:?} is no number: {error}")))?;
    for _ in 0..times {
        publish("out").bytes(payload.clone()).media_type(media_type.clone()).send()?;
    }
    Ok(())
}
