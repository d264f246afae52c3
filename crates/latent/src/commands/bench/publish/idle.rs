//! what providers hold that are installed and never used, as the system counts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools};
use latent_core::{SystemClock, TenantId};
use latent_nats::{NatsPools, NatsPublisher};
use latent_secrets::LocalSecretStore;

use super::super::failed;
use super::broken;
use super::ours::{install, parsed, store};
use super::target::Target;
use crate::error::CliError;

/// Mappings of one provider, each of a tenant of its own: the most credentials that so many mappings can need.
const MAPPINGS: usize = 16;
/// Providers installed together, so that pages of 4 KiB are small beside them.
const PROVIDERS: usize = 8;

/// Installs and keeps, round by round.
pub(super) struct Idle<'t> {
    target: &'t Target,
    folder: PathBuf,
    tenants: Vec<TenantId>,
    kept: Vec<(NatsPools, Vec<NatsPublisher>)>,
}

impl<'t> Idle<'t> {
    pub(super) fn prepare(target: &'t Target, folder: &Path) -> Result<Self, CliError> {
        let tenants = (0..MAPPINGS).map(|number| parsed(TenantId::parse(&format!("tenant-{number}")))).collect::<Result<_, _>>()?;
        Ok(Self { target, folder: folder.to_owned(), tenants, kept: Vec::new() })
    }

    /// Bytes of one provider with 16 mappings. A socket that is opened on the way ends the measurement.
    pub(super) fn bytes_each(&mut self) -> Result<f64, CliError> {
        let clock = Arc::new(SystemClock::start());
        let pools = NatsPools {
            capabilities: Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default()))),
            pools: ProviderPools::new(PoolSettings::default(), Arc::clone(&clock) as _),
            clock,
        };
        let round = self.kept.len();
        // A store has room for the credentials of one round.
        let secrets = self.store_of(round)?;
        let (before, sockets) = (resident_bytes()?, sockets()?);
        let one = |number| install(&pools, self.target, &secrets, &format!("idle-{round}-{number}"), &self.tenants);
        let publishers = (0..PROVIDERS).map(one).collect::<Result<_, _>>()?;
        let (after, sockets_after) = (resident_bytes()?, self::sockets()?);
        self.kept.push((pools, publishers));
        if sockets_after != sockets {
            return Err(broken("measuring Q-13", &format!("{sockets} sockets became {sockets_after} without a publication")));
        }
        // What the allocator had free is used first, so a round can look like none at all.
        Ok(after.saturating_sub(before).max(1) as f64 / PROVIDERS as f64)
    }

    fn store_of(&self, round: usize) -> Result<Arc<LocalSecretStore>, CliError> {
        let folder = self.folder.join(round.to_string());
        fs::create_dir(&folder).map_err(failed("making a folder for secrets"))?;
        store(&folder)
    }
}

/// Memory of this process alone.
pub(in super::super) fn resident_bytes() -> Result<u64, CliError> {
    let status = fs::read_to_string("/proc/self/status").map_err(failed("reading this process's status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).and_then(|rest| rest.split_whitespace().next());
    let kibibytes = line.and_then(|number| number.parse::<u64>().ok());
    kibibytes.map(|number| number * 1_024).ok_or_else(|| broken("reading this process's status", &"it has no RssAnon"))
}

/// Sockets of this process.
pub(in super::super) fn sockets() -> Result<usize, CliError> {
    let folder = PathBuf::from("/proc/self/fd");
    let entries = fs::read_dir(&folder).map_err(failed("listing this process's files"))?;
    let is_socket = |path: PathBuf| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
    Ok(entries.flatten().filter(|entry| is_socket(entry.path())).count())
}
