//! `latent service`: what may be called, where calls lead, and what may never be called again.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use latent_core::{RouteName, ServiceName, TenantId};

use crate::access::{Access, Stopped, unexpected, without_bindings};
use crate::administration::{AdminError, Selector, short_digest};
use crate::config::{self, NamedFiles, nearest};
use crate::control::{Answer, ControlError, Fault, Request, RevokeOrder, Revoked, RouteInfo, RouteOrder, Routed, ServiceInfo};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;

/// `latent service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Show every publication: component, state, the routes that lead to it
    List(ListArgs),
    /// Point a route of the running node at a publication
    Route(RouteArgs),
    /// Revoke a service's component for good, for everybody or one tenant
    Revoke(RevokeArgs),
}

/// Arguments of `latent service list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  latent service list -c latent.toml --json

STATE: `live` may be called; `revoked` never again; `stopped`, the node is not running; `absent`, not published and revoked for some \
tenants. ROUTES: tenant, name of the route if it has one, and @generation, which grows with each change of its target. Publications are \
numbered anew at each start of the node.")]
pub(crate) struct ListArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent service route`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent service route triage --to 2
  latent service route triage --to sha256:3f2a9c01 --expect-generation 1

What was reserved before the change runs on the old target, what comes after it on the new one. The change lasts until the node stops: \
the routes of its next start come from the configuration.")]
pub(crate) struct RouteArgs {
    /// The service
    service: String,
    /// The publication: its number in `latent service list`, or the beginning of its component's digest
    #[arg(long, value_name = "PUBLICATION|DIGEST")]
    to: String,
    /// Whose route; may be left out when the publication has one tenant
    #[arg(long)]
    tenant: Option<String>,
    /// The route's name; the default route if left out
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Change it only if it has this generation; 0 for a route that never was
    #[arg(long, value_name = "G")]
    expect_generation: Option<u64>,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Arguments of `latent service revoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent service revoke triage
  latent service revoke triage --digest 3f2a9c01 --tenant acme

From then on nothing starts on the component, whatever the configuration says; what runs ends by itself, and events wait in the log \
without loss. There is no command to undo it: a rebuilt component has another digest and is not concerned. It works on a stopped node's \
directory, too; a component that is not published is named by all 64 digits.

Exit status: 3 when it is in force and could not be made durable; else 0 when all of it is.")]
pub(crate) struct RevokeArgs {
    /// The service
    service: String,
    /// Only this component: the beginning of its digest; every component the service is published with if left out
    #[arg(long, value_name = "PREFIX")]
    digest: Option<String>,
    /// Only for this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
}

/// Runs `latent service …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn service(command: &ServiceCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        ServiceCommand::List(args) => list(args, output),
        ServiceCommand::Route(args) => route(args, output),
        ServiceCommand::Revoke(args) => revoke(args, output),
    }
}

fn list(args: &ListArgs, output: &mut Output) -> Result<(), CliError> {
    let mut services = every_service(&mut access(&args.config, "latent service list")?)?;
    match output.form() {
        Form::Json => services.iter().try_for_each(|service| output.json(service)),
        Form::Human => {
            services.sort_by(|one, other| (&one.service, one.publication).cmp(&(&other.service, other.publication)));
            table(&services).lines().try_for_each(|line| output.text(line))
        }
    }
}

fn route(args: &RouteArgs, output: &mut Output) -> Result<(), CliError> {
    check_names(&args.service, args.tenant.as_deref())?;
    args.route.as_deref().map(RouteName::parse).transpose().map_err(|error| value("--route", &error.into()))?;
    Selector::parse(&args.to).map_err(|error| value("--to", &error))?;
    let order = RouteOrder {
        service: args.service.clone(),
        tenant: args.tenant.clone(),
        route: args.route.clone(),
        to: args.to.clone(),
        expect_generation: args.expect_generation,
    };
    let mut access = access(&args.config, "latent service route")?;
    let Answer::Routed(routed) = change(&mut access, "pointing the route", &args.service, Request::RouteService(order))? else {
        return Err(unexpected("pointing the route"));
    };
    output.line(&routed, || routed_words(&routed))?;
    output.hint("it lasts until the node stops; the routes of its next start come from the configuration");
    Ok(())
}

fn revoke(args: &RevokeArgs, output: &mut Output) -> Result<(), CliError> {
    check_names(&args.service, args.tenant.as_deref())?;
    args.digest.as_deref().map(Selector::parse_digest).transpose().map_err(|error| value("--digest", &error))?;
    let order = RevokeOrder { service: args.service.clone(), digest: args.digest.clone(), tenant: args.tenant.clone() };
    let mut access = access(&args.config, "latent service revoke")?;
    let Answer::Revoked(revoked) = change(&mut access, "the revocation", &args.service, Request::RevokeService(order))? else {
        return Err(unexpected("the revocation"));
    };
    revoked.iter().try_for_each(|revoked| output.line(revoked, || revoked_words(revoked)))
}

fn check_names(service: &str, tenant: Option<&str>) -> Result<(), CliError> {
    ServiceName::parse(service).map_err(|error| value("SERVICE", &error.into()))?;
    tenant.map(TenantId::parse).transpose().map_err(|error| value("--tenant", &error.into()))?;
    Ok(())
}

fn value(option: &'static str, error: &AdminError) -> CliError {
    CliError::Value { option, reason: error.to_string() }
}

fn access(config: &Path, holder: &str) -> Result<Access, CliError> {
    let config = config::load(config, NamedFiles::NotNeeded)?.config;
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)
}

/// Asks for a change. When there is no such service, the error says which there are.
fn change(access: &mut Access, doing: &str, service: &str, request: Request) -> Result<Answer, CliError> {
    let doing = doing.to_owned();
    match access.try_ask(request) {
        Ok(answer) => Ok(answer),
        Err(ControlError::Refused(fault)) if fault.is_unknown_service() => Err(unknown_service(access, service)?),
        Err(ControlError::Refused(fault)) => Err(refused(doing, fault)),
        Err(source) if source.may_have_happened() => Err(CliError::Unanswered { doing, source }),
        Err(source) => Err(CliError::Control { doing, source }),
    }
}

fn refused(doing: String, fault: Fault) -> CliError {
    CliError::Log { doing, fault }
}

fn unknown_service(access: &mut Access, service: &str) -> Result<CliError, CliError> {
    let mut known: Vec<_> = every_service(access)?.into_iter().map(|info| info.service).collect();
    known.sort();
    known.dedup();
    let nearest = nearest(service, known.iter().map(String::as_str)).map(str::to_owned);
    Ok(CliError::UnknownService { service: service.to_owned(), nearest, known })
}

fn every_service(access: &mut Access) -> Result<Vec<ServiceInfo>, CliError> {
    const DOING: &str = "asking for the services";
    let mut all: Vec<ServiceInfo> = Vec::new();
    loop {
        let after = all.last().map(ServiceInfo::place);
        let Answer::Services { services, more } = access.ask(DOING, Request::Services { after: after.clone() })? else {
            return Err(unexpected(DOING));
        };
        // Each page must lie after the one before it, or this would never end.
        let advances = services.last().is_some_and(|last| after.is_none_or(|after| last.place() > after));
        if more && !advances {
            return Err(unexpected(DOING));
        }
        all.extend(services);
        if !more {
            return Ok(all);
        }
    }
}

const HEADINGS: &[&str] = &["SERVICE", "TENANTS", "PUBLICATION", "COMPONENT", "STATE", "REVOKED FOR", "ROUTES"];

fn table(services: &[ServiceInfo]) -> String {
    let mut table = Table::new(HEADINGS);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for service in services {
        let mut routes: Vec<_> = service.routes.iter().map(route_words).collect();
        routes.extend((service.routes_left_out > 0).then(|| format!("and {} more", service.routes_left_out)));
        table.push(vec![
            service.service.clone(),
            or_dash(service.tenants.join(", ")),
            or_dash(service.publication.map(|number| number.to_string()).unwrap_or_default()),
            or_dash(service.digest.as_deref().map(short_digest).unwrap_or_default().to_owned()),
            service.state.word().to_owned(),
            or_dash(service.revoked_for.join(", ")),
            or_dash(routes.join(", ")),
        ]);
    }
    table.to_string()
}

fn route_words(route: &RouteInfo) -> String {
    let RouteInfo { tenant, route, generation } = route;
    match route {
        Some(route) => format!("{tenant}/{route}@{generation}"),
        None => format!("{tenant}@{generation}"),
    }
}

fn routed_words(routed: &Routed) -> String {
    let Routed { service, tenant, route, publication, digest, generation } = routed;
    let which = route.as_ref().map_or_else(|| "the default route".to_owned(), |route| format!("route {route}"));
    format!(
        "{which} of {tenant} to service {service} leads to publication {publication} ({}), generation {generation}",
        short_digest(digest)
    )
}

fn revoked_words(revoked: &Revoked) -> String {
    let Revoked { service, digest, tenant } = revoked;
    let whom = tenant.as_ref().map_or_else(|| "for everybody".to_owned(), |tenant| format!("for {tenant}"));
    format!("revoked {whom}, for good: service {service}, component {digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ServiceState;

    #[test]
    fn the_table_shows_components_states_and_routes() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let route = |route: Option<&str>, generation| RouteInfo { tenant: "acme".to_owned(), route: route.map(str::to_owned), generation };
        let live = ServiceInfo {
            service: "triage".to_owned(),
            tenants: vec!["acme".to_owned(), "beta".to_owned()],
            publication: Some(2),
            digest: Some(digest),
            state: ServiceState::Live,
            revoked_for: vec!["beta".to_owned()],
            routes: vec![route(None, 3), route(Some("canary"), 1)],
            routes_left_out: 7,
        };
        let unread = ServiceInfo {
            tenants: Vec::new(),
            publication: None,
            digest: None,
            state: ServiceState::Stopped,
            revoked_for: Vec::new(),
            routes: Vec::new(),
            routes_left_out: 0,
            ..live.clone()
        };
        let text = table(&[live, unread]);
        let rows: Vec<_> =
            text.lines().skip(1).map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()).collect();
        assert_eq!(rows[0], ["triage", "acme, beta", "2", "sha256:abababababab", "live", "beta", "acme@3, acme/canary@1, and 7 more"]);
        assert_eq!(rows[1], ["triage", "-", "-", "-", "stopped", "-", "-"]);
    }
}
