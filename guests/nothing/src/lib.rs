//! A handler that does nothing: what is measured with it is what an activation costs by itself. `latent bench activation` carries a
//! built copy.

latent_sdk::handler!(handle);

fn handle(_event: latent_sdk::Event) -> latent_sdk::Handled {
    Ok(())
}
