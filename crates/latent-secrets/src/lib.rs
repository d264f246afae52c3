//! Secrets at rest, and handles that show them for one purpose, tenant, provider and destination only.
