//! The loop of `latent dev`, on a thread of its own: look at the files, ask the foreman, do it, answer. Decides nothing that the
//! foreman can decide.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use latent_core::{Clock, SystemClock};

use super::foreman::{Foreman, Look, Subject, TakenIn, Work};
use super::hands::{Done, Hands, Kept, NotRun, Said};
use super::message::{Building, Ended, Failed, InForce, Instead, Message, Route};
use super::project::{CargoProject, Package, PackageError};
use super::scan::{self, Place};
use super::voice::Voice;
use crate::config::{self, Config, ConfigError, EngineConfig, NamedFiles};
use crate::control::{ControlTarget, ReloadOrder};
use crate::error::CliError;
use crate::limits;

/// What a small answer of a compiler is kept of.
const ANSWER_BYTES: usize = 4_096;

/// Asks for a node of this configuration, and for the node as commands see it.
pub(super) struct StartOrder {
    /// Whose components are there.
    pub(super) config: Config,
    /// Takes the answer: why there is no node, in which case another one is asked for later.
    pub(super) answer: mpsc::Sender<Result<Arc<dyn ControlTarget>, CliError>>,
}

/// See the module.
pub(super) struct Workshop {
    config_path: PathBuf,
    hands: Arc<Hands>,
    voice: Voice,
    clock: SystemClock,
    foreman: Foreman,
    plan: Plan,
    starter: tokio::sync::mpsc::Sender<StartOrder>,
    node: Option<Serving>,
}

/// A node that serves.
struct Serving {
    target: Arc<dyn ControlTarget>,
    routes: Vec<Route>,
}

/// What the settings say is to be watched and built.
#[derive(Default)]
struct Plan {
    places: BTreeMap<Subject, Place>,
    projects: BTreeMap<PathBuf, Project>,
    /// Subjects of which it was said that they are too large to be watched whole.
    told_cut: BTreeSet<Subject>,
}

struct Project {
    cargo: CargoProject,
    services: Vec<String>,
}

/// The files that are read for a configuration, beside components.
fn settings_of(config: &Config) -> BTreeSet<PathBuf> {
    let EngineConfig { manifest_path, .. } = &config.engine;
    BTreeSet::from([config.path.clone(), manifest_path.clone()])
}

/// Where the default route of each service leads.
pub(super) fn routes_of(target: &dyn ControlTarget) -> Vec<Route> {
    let services = target.services().unwrap_or_default();
    let routes = services.into_iter().flat_map(|info| {
        let (service, component) = (info.service, info.digest.unwrap_or_default());
        let default = info.routes.into_iter().filter(|route| route.route.is_none());
        default.map(move |route| Route { service: service.clone(), component: component.clone(), generation: route.generation })
    });
    routes.collect()
}

impl Workshop {
    /// For this configuration, whose path is absolute. It is read again before anything is done.
    pub(super) fn new(config: &Config, hands: Arc<Hands>, voice: Voice, starter: tokio::sync::mpsc::Sender<StartOrder>) -> Self {
        let settings = Place { files: settings_of(config), ..Place::default() };
        let plan = Plan { places: BTreeMap::from([(Subject::Settings, settings)]), ..Plan::default() };
        let config_path = config.path.clone();
        Self { config_path, hands, voice, clock: SystemClock::start(), foreman: Foreman::new(), plan, starter, node: None }
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    /// What no change of a watched file can mend, before a node serves.
    pub(super) fn work(mut self) -> Result<(), CliError> {
        let pause = Duration::from_millis(limits::DEV_LOOK_MILLIS.default);
        loop {
            let look = self.look();
            let now = self.clock.mono();
            self.foreman.handle_look(now, look);
            match self.foreman.poll(now) {
                Some(work) => self.carry_out(work)?,
                None => self.hands.pause(pause),
            }
            if self.hands.is_stopped() {
                return Ok(());
            }
        }
    }

    fn look(&mut self) -> Look {
        let mut look = Look::new();
        for (subject, place) in &self.plan.places {
            let seen = scan::look(place);
            if seen.is_cut && self.plan.told_cut.insert(subject.clone()) {
                let folders: Vec<_> = place.folders.iter().map(|folder| folder.display().to_string()).collect();
                let files = limits::DEV_WATCHED_FILES.default;
                self.voice.say(Message::Note(format!(
                    "only the first {files} files of {} are watched; a change of another one is built with the next change",
                    folders.join(", ")
                )));
            }
            look.insert(subject.clone(), seen.files);
        }
        look
    }

    fn carry_out(&mut self, work: Work) -> Result<(), CliError> {
        match work {
            Work::Survey => self.survey(),
            Work::Build { component, changed } => self.build(&component, &changed),
            Work::TakeIn => {
                let taken_in = self.take_in()?;
                self.foreman.handle_taken_in(self.clock.mono(), taken_in);
            }
        }
        Ok(())
    }

    fn instead(&self) -> Instead {
        if self.node.is_some() { Instead::WhatRan } else { Instead::Nothing }
    }

    fn refused(&self, error: &CliError) {
        let message = format!("{error}\n{}\n{}", error.why(), error.next_step());
        self.voice.say(Message::Refused { kind: error.kind().to_owned(), message, instead: self.instead() });
    }

    fn survey(&mut self) {
        match config::load_for_dev(&self.config_path, NamedFiles::NotNeeded) {
            Ok(loaded) => {
                loaded.warnings.iter().for_each(|warning| self.voice.say(Message::Note(format!("warning: {warning}"))));
                self.make_plan(&loaded.config);
                self.foreman.handle_surveyed(self.clock.mono());
            }
            Err(error) => self.refused(&error.into()),
        }
    }

    fn make_plan(&mut self, config: &Config) {
        let mut plan = Plan { told_cut: std::mem::take(&mut self.plan.told_cut), ..Plan::default() };
        let settings = settings_of(config);
        let components: BTreeSet<_> = config.services.iter().map(|service| service.component.clone()).collect();
        let except: BTreeSet<_> = settings.iter().chain(&components).chain([&config.node.data_dir]).cloned().collect();
        for cargo in components.iter().filter_map(|component| CargoProject::of(component)) {
            let uses = config.services.iter().filter(|service| service.component == cargo.component);
            let services = uses.map(|service| service.name.to_string()).collect();
            // A project that cannot tell of itself yet is watched from its folder on.
            let folders = self.package(&cargo).map_or_else(|_| BTreeSet::from([cargo.root().to_owned()]), |package| package.folders);
            let mut except = except.clone();
            except.insert(cargo.target_dir.clone());
            let place = Place { folders, files: cargo.workspace_files().collect(), except };
            plan.places.insert(Subject::Project(cargo.component.clone()), place);
            plan.projects.insert(cargo.component.clone(), Project { cargo, services });
        }
        plan.places.insert(Subject::Settings, Place { files: settings, ..Place::default() });
        plan.places.insert(Subject::Components, Place { files: components, ..Place::default() });
        self.plan = plan;
    }

    fn build(&mut self, component: &Path, changed: &[PathBuf]) {
        let Some(project) = self.plan.projects.get(component) else { return };
        let (name, cargo) = (project.cargo.name().to_owned(), project.cargo.clone());
        let changed = changed.iter().map(|path| path.strip_prefix(cargo.root()).unwrap_or(path).display().to_string());
        self.voice.say(Message::Building(Building {
            project: name.clone(),
            services: project.services.clone(),
            changed: changed.collect(),
            command: cargo.command_line(),
        }));
        let begun = Instant::now();
        let built = self.package(&cargo).and_then(|package| Ok((self.compile(&cargo, &package)?, package)));
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match built {
            Ok((output, package)) => {
                // A dependency by path may be new.
                if let Some(place) = self.plan.places.get_mut(&Subject::Project(component.to_owned())) {
                    place.folders = package.folders;
                }
                self.voice.say(Message::Built(Ended { project: name, millis, output }));
                self.foreman.handle_built(self.clock.mono(), component);
            }
            Err(NotBuilt::Stopped) => {}
            Err(NotBuilt::Failed { output, next }) => {
                self.voice.say(Message::BuildFailed(Failed { project: name, millis, output, next }));
                self.foreman.handle_build_failed(component);
            }
        }
    }

    /// Asks cargo which package makes the component.
    fn package(&self, cargo: &CargoProject) -> Result<Package, NotBuilt> {
        let kept = Kept { stdout_bytes: limits::DEV_METADATA_BYTES.max_usize(), stderr_bytes: limits::DEV_BUILD_OUTPUT_BYTES.max_usize() };
        let said = self.run_cargo(cargo, &cargo.metadata_arguments(), kept)?.stdout;
        limits::DEV_METADATA_BYTES.check(said.bytes.len() as u64 + said.bytes_left_out).map_err(PackageError::from)?;
        Ok(cargo.package(&said.bytes)?)
    }

    /// Makes the component; gives what the compiler said.
    fn compile(&self, cargo: &CargoProject, package: &Package) -> Result<Said, NotBuilt> {
        let kept = Kept { stdout_bytes: 0, stderr_bytes: limits::DEV_BUILD_OUTPUT_BYTES.max_usize() };
        Ok(self.run_cargo(cargo, &cargo.build_arguments(package), kept)?.stderr)
    }

    fn run_cargo(&self, cargo: &CargoProject, arguments: &[String], kept: Kept) -> Result<Done, NotBuilt> {
        // Where a person would type it: there the toolchain of the project is found.
        let done = match self.hands.run(Command::new("cargo").args(arguments).current_dir(cargo.root()), kept) {
            Ok(done) => done,
            Err(NotRun::Stopped) => return Err(NotBuilt::Stopped),
            Err(NotRun::System(error)) => return Err(NotBuilt::without_cargo(&error, &cargo.triple)),
        };
        if done.status.success() {
            return Ok(done);
        }
        Err(NotBuilt::Failed { output: done.stderr, next: self.missing_target(cargo) })
    }

    /// The command that installs the target, where it is missing.
    fn missing_target(&self, cargo: &CargoProject) -> Option<String> {
        let arguments = ["--print", "target-libdir", "--target", &cargo.triple];
        let kept = Kept { stdout_bytes: ANSWER_BYTES, stderr_bytes: 0 };
        let done = self.hands.run(Command::new("rustc").args(arguments).current_dir(cargo.root()), kept).ok()?;
        let libraries = String::from_utf8(done.stdout.bytes).ok()?;
        let is_missing = done.status.success() && !Path::new(libraries.trim()).is_dir();
        is_missing.then(|| format!("install the target with `rustup target add {}`, then save a file", cargo.triple))
    }

    fn take_in(&mut self) -> Result<TakenIn, CliError> {
        let Some(serving) = &mut self.node else { return self.start() };
        match serving.target.reload(ReloadOrder::default()) {
            Ok(reloaded) => {
                let before = std::mem::replace(&mut serving.routes, routes_of(serving.target.as_ref()));
                let routes = serving.routes.iter().filter(|route| !before.contains(route)).cloned().collect();
                let (epoch, changes, notes) = (reloaded.epoch, reloaded.changes, reloaded.notes);
                self.voice.say(Message::InForce(InForce { epoch, changes, routes, notes }));
            }
            Err(fault) if fault.kind == "busy" => return Ok(TakenIn::Busy),
            // The end of the command is near, and not worth a line.
            Err(fault) if fault.kind == "stopping" => {}
            Err(fault) => self.voice.say(Message::Refused { kind: fault.kind, message: fault.message, instead: Instead::WhatRan }),
        }
        Ok(TakenIn::Answered)
    }

    fn start(&mut self) -> Result<TakenIn, CliError> {
        let config = match config::load_for_dev(&self.config_path, NamedFiles::ComponentsMustExist) {
            Ok(loaded) => loaded.config,
            Err(error) => return self.cannot_start(error),
        };
        let (answer, answered) = mpsc::channel();
        // Errors mean that the command ends.
        if self.starter.blocking_send(StartOrder { config, answer }).is_err() {
            return Ok(TakenIn::Answered);
        }
        match answered.recv() {
            Ok(Ok(target)) => self.node = Some(Serving { routes: routes_of(target.as_ref()), target }),
            Ok(Err(error)) => self.refused(&error),
            Err(mpsc::RecvError) => {}
        }
        Ok(TakenIn::Answered)
    }

    /// Where there is something to build, a component that is missing can still come.
    fn cannot_start(&self, error: ConfigError) -> Result<TakenIn, CliError> {
        let error = CliError::from(error);
        if self.plan.projects.is_empty() {
            return Err(error);
        }
        self.refused(&error);
        Ok(TakenIn::Answered)
    }
}

/// Why there is no new component.
enum NotBuilt {
    /// The command ends.
    Stopped,
    /// Cargo or the compiler said no.
    Failed {
        /// In their words.
        output: Said,
        /// What to do, where it is not to mend a source.
        next: Option<String>,
    },
}

impl NotBuilt {
    fn without_cargo(error: &io::Error, triple: &str) -> Self {
        let next = (error.kind() == io::ErrorKind::NotFound).then(|| {
            format!("install Rust (https://rustup.rs) and its target with `rustup target add {triple}`, then start `latent dev` again")
        });
        Self::Failed { output: Said::words(&format!("cargo could not be started: {error}")), next }
    }
}

impl From<PackageError> for NotBuilt {
    fn from(error: PackageError) -> Self {
        Self::Failed { output: Said::words(&error.to_string()), next: None }
    }
}
