//! `[[service]]` and its grants.

use std::path::Path;

use latent_core::{ContractName, LogicalTopic, ServiceName, TenantId};

use super::component;
use super::draft::{GrantDraft, ServiceDraft};
use super::load::NamedFiles;
use super::problem::Fault;
use super::section::{Report, Section, Spanned, nearest, parsed_all};

/// Capabilities that can be granted. `latent:log` and `latent:context` need no grant: they reach nothing outside the activation.
const CAPABILITIES: &[&str] = &["latent:events/publisher@0.2.0"];

pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>, folder: &Path, files: NamedFiles) -> ServiceDraft {
    let name = section.required_name(report, "name", "name = \"triage\"", ServiceName::parse);
    let tenant = section.required_name(report, "tenant", "tenant = \"acme\"", TenantId::parse);
    let file = section.required_text(report, "component", "component = \"triage.wasm\"");
    let file = file.map(|path| Spanned { value: folder.join(path.value), at: path.at });
    if let (NamedFiles::MustExist | NamedFiles::ComponentsMustExist, Some(file)) = (files, &file) {
        component::check(report, file);
    }
    let mut grants: Vec<GrantDraft> = Vec::new();
    for grant in section.tables(report, "grants") {
        let grant = read_grant(report, grant);
        if let Some(capability) = &grant.capability
            && let Some(first) =
                grants.iter().filter_map(|earlier| earlier.capability.as_ref()).find(|first| first.value == capability.value)
        {
            report.push_duplicate("capability", capability.value.as_str(), first.at, capability.at);
        }
        grants.push(grant);
    }
    section.finish(report, &[]);
    ServiceDraft { name, tenant, component: file, grants }
}

fn read_grant(report: &mut Report<'_>, mut section: Section<'_>) -> GrantDraft {
    let capability = section.required_name(report, "capability", "capability = \"latent:events/publisher@0.2.0\"", ContractName::parse);
    if let Some(given) = &capability
        && !CAPABILITIES.contains(&given.value.as_str())
    {
        let fault = Fault::Choice {
            table: section.label().to_owned(),
            key: "capability",
            found: given.value.as_str().to_owned(),
            allowed: CAPABILITIES,
            nearest: nearest(given.value.as_str(), CAPABILITIES.iter().copied()),
        };
        report.push(given.at, fault);
    }
    let listed = section.required_texts(report, "topics", "topics = [\"triage.results\"]; without one it grants nothing");
    let topics = parsed_all(report, listed, LogicalTopic::parse);
    section.finish(report, &[]);
    GrantDraft { capability, topics }
}
