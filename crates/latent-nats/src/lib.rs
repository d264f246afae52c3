//! The bounded NATS adapter: confined TLS transport and the publisher.
