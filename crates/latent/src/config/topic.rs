//! `[[topic]]`.

use latent_core::{TenantId, TopicName};

use super::draft::{ShareDraft, TopicDraft};
use super::problem::Fault;
use super::section::{Report, Section, nearest};
use super::settings::SharePermission;

const RIGHTS: &[&str] = &["publish", "subscribe"];

pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>) -> TopicDraft {
    let name = section.required_name(report, "name", "name = \"github.events\"", TopicName::parse);
    let tenant = section.required_name(report, "tenant", "tenant = \"acme\", its owner", TenantId::parse);
    let shares = section.tables(report, "share").into_iter().map(|share| read_share(report, share)).collect();
    section.finish(report, &[]);
    TopicDraft { name, tenant, shares }
}

fn read_share(report: &mut Report<'_>, mut section: Section<'_>) -> ShareDraft {
    let tenant = section.required_name(report, "tenant", "tenant = \"b\", whom it is shared with", TenantId::parse);
    let mut may = Vec::new();
    for right in section.required_texts(report, "may", "may = [\"publish\"], [\"subscribe\"] or both") {
        match right.value {
            "publish" => may.push(SharePermission::Publish),
            "subscribe" => may.push(SharePermission::Subscribe),
            other => {
                let fault = Fault::Choice {
                    table: section.label().to_owned(),
                    key: "may",
                    found: other.to_owned(),
                    allowed: RIGHTS,
                    nearest: nearest(other, RIGHTS.iter().copied()),
                };
                report.push(right.at, fault);
            }
        }
    }
    section.finish(report, &[]);
    ShareDraft { tenant, may }
}
