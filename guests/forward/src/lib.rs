//! A handler that publishes its event once more, to the topic `out`, under a key derived from the event: what is measured with it is what
//! an event costs from topic to topic. `latent bench trigger` carries a built copy.

use latent_sdk::{Event, Handled, publish};

latent_sdk::handler!(handle);

fn handle(event: Event) -> Handled {
    let Event { key, media_type, payload, .. } = event;
    let forwarded = publish("out").bytes(payload).media_type(media_type);
    let forwarded = match key {
        Some(key) => forwarded.key(key),
        None => forwarded,
    };
    forwarded.send()?;
    Ok(())
}
