//! Which topic of which tenant is published on which subject, and expected in which stream (P-004, P-006, D-08).

use latent_core::{LogicalTopic, StreamName, Subject, TenantId};

use crate::ConfigError;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) tenant: TenantId,
    pub(crate) topic: LogicalTopic,
    pub(crate) subject: Subject,
    pub(crate) stream: StreamName,
}

/// A checked set of mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mappings {
    all: Vec<Mapping>,
    /// Each once, in the order of first mention: a tenant's place in the pools.
    tenants: Vec<TenantId>,
}

impl Mappings {
    pub(crate) fn check(all: Vec<Mapping>) -> Result<Self, ConfigError> {
        let mut tenants: Vec<TenantId> = Vec::new();
        for (index, mapping) in all.iter().enumerate() {
            let earlier = &all[..index];
            if earlier.iter().any(|other| other.tenant == mapping.tenant && other.topic == mapping.topic) {
                let (tenant, topic) = (mapping.tenant.clone(), mapping.topic.to_string());
                return Err(ConfigError::DoubleMapping { index, tenant, topic });
            }
            if let Some(other) = earlier.iter().find(|other| other.subject == mapping.subject) {
                let subject = mapping.subject.to_string();
                if other.tenant != mapping.tenant {
                    let (tenant, owner) = (mapping.tenant.clone(), other.tenant.clone());
                    return Err(ConfigError::SharedSubject { index, subject, tenant, owner });
                }
                if other.stream != mapping.stream {
                    let (stream, other) = (mapping.stream.to_string(), other.stream.to_string());
                    return Err(ConfigError::TwoStreams { index, subject, stream, other });
                }
            }
            if !tenants.contains(&mapping.tenant) {
                tenants.push(mapping.tenant.clone());
            }
        }
        Ok(Self { all, tenants })
    }

    /// What a topic of a tenant is mapped to, and the tenant's place.
    pub(crate) fn find(&self, tenant: &TenantId, topic: &LogicalTopic) -> Option<(usize, &Mapping)> {
        let mapping = self.all.iter().find(|mapping| mapping.tenant == *tenant && mapping.topic == *topic)?;
        let place = self.tenants.iter().position(|known| known == tenant)?;
        Some((place, mapping))
    }

    pub(crate) fn all(&self) -> &[Mapping] {
        &self.all
    }

    pub(crate) fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }
}
