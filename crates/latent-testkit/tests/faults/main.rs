//! Proxy and scripted peer.
