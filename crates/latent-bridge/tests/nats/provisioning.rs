//! What provisioning makes, changes, leaves alone and refuses on a broker (B-050 to B-053).
