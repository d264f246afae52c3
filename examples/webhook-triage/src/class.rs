//! The classes, and which kind of webhook belongs to which.

use serde::Serialize;

/// What a webhook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// Branches, tags and commits.
    Code,
    /// Pull requests and what is said on them.
    Review,
    /// Issues, discussions and their planning.
    Issue,
    /// What is released, packaged or deployed.
    Release,
    /// Checks and workflows.
    Ci,
    /// Alerts, advisories and what protects a repository.
    Security,
    /// People, teams, installations and settings.
    Administration,
    /// Everything else, kinds that do not exist yet included.
    Other,
}

impl Class {
    /// The class of a kind of webhook, as GitHub names it in `X-GitHub-Event`.
    pub(crate) fn of(event: &str) -> Self {
        match event {
            "commit_comment" | "create" | "delete" | "fork" | "gollum" | "merge_group" | "push" => Self::Code,
            "pull_request" | "pull_request_review" | "pull_request_review_comment" | "pull_request_review_thread" => Self::Review,
            "discussion" | "discussion_comment" | "issue_comment" | "issues" | "label" | "milestone" | "project" | "project_card"
            | "project_column" | "projects_v2_item" => Self::Issue,
            "deployment" | "deployment_review" | "deployment_status" | "package" | "page_build" | "release" => Self::Release,
            "check_run" | "check_suite" | "repository_dispatch" | "status" | "workflow_dispatch" | "workflow_job" | "workflow_run" => {
                Self::Ci
            }
            "branch_protection_rule"
            | "code_scanning_alert"
            | "dependabot_alert"
            | "deploy_key"
            | "repository_vulnerability_alert"
            | "secret_scanning_alert"
            | "security_advisory" => Self::Security,
            "github_app_authorization"
            | "installation"
            | "installation_repositories"
            | "marketplace_purchase"
            | "member"
            | "membership"
            | "meta"
            | "org_block"
            | "organization"
            | "ping"
            | "public"
            | "repository"
            | "repository_import"
            | "team"
            | "team_add" => Self::Administration,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_kinds_and_an_unknown_kind_is_other() {
        let table = [
            ("push", Class::Code),
            ("pull_request_review", Class::Review),
            ("issues", Class::Issue),
            ("deployment_status", Class::Release),
            ("workflow_run", Class::Ci),
            ("dependabot_alert", Class::Security),
            ("team_add", Class::Administration),
            ("star", Class::Other),
            ("quantum_fork", Class::Other),
        ];
        for (event, class) in table {
            assert_eq!(Class::of(event), class, "{event}");
        }
    }

    #[test]
    fn a_class_is_written_in_lower_case() {
        assert_eq!(serde_json::to_string(&Class::Administration).unwrap(), "\"administration\"");
    }
}
