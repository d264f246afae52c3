//! The NATS client protocol and the JetStream exchanges as state machines: bytes in, bytes out.
