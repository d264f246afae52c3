//! Which cargo project makes a component, with which command, from which folders.
//!
//! The component's path says it: `TARGET/wasm32-…/PROFILE/NAME.wasm` was made by cargo in `TARGET`, from the nearest `Cargo.toml`
//! above. Which package of that workspace makes `NAME`, and which other folders it is built from, is what `cargo metadata` says.
//! Pure but for one question to the file system, whether a `Cargo.toml` is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use latent_core::LimitError;
use serde::Deserialize;

const MANIFEST: &str = "Cargo.toml";
/// See [`CargoProject::workspace_files`].
const WORKSPACE_FILES: &[&str] = &[MANIFEST, "Cargo.lock", "rust-toolchain.toml", "rust-toolchain", ".cargo/config.toml"];
/// What targets that components are made for begin with.
const TARGET_PREFIX: &str = "wasm32-";
/// The folder that cargo's profile `dev` goes to.
const DEBUG: &str = "debug";

/// A component that cargo makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CargoProject {
    /// The component's file, as the configuration leads to it.
    pub(super) component: PathBuf,
    /// The nearest `Cargo.toml`.
    pub(super) manifest: PathBuf,
    /// Where cargo puts what it makes.
    pub(super) target_dir: PathBuf,
    /// The target it is made for.
    pub(super) triple: String,
    /// Name of the profile's folder.
    profile: String,
    /// What the file is called, without its ending.
    artifact: String,
}

/// The package that makes a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    /// Its `Cargo.toml`.
    pub(super) manifest: PathBuf,
    /// Folders that hold its sources, and those of packages it is built from.
    pub(super) folders: BTreeSet<PathBuf>,
}

/// Why no package can be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackageError {
    /// Cargo said more than is read.
    #[error(transparent)]
    TooLarge(#[from] LimitError),
    /// What cargo said is not what it documents.
    #[error("`cargo metadata` said something else than a description of the workspace: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// There is no such artefact.
    #[error(
        "no package of {} makes {artifact}.wasm; name the library or program so, or correct `component` in the configuration",
        manifest.display()
    )]
    NoPackage {
        /// Of the workspace.
        manifest: PathBuf,
        /// What is to be made.
        artifact: String,
    },
}

impl CargoProject {
    /// The project that makes `component`; `None` for a file that comes from elsewhere.
    pub(super) fn of(component: &Path) -> Option<Self> {
        Self::with(component, Path::is_file)
    }

    fn with(component: &Path, is_file: impl Fn(&Path) -> bool) -> Option<Self> {
        if component.extension()? != "wasm" {
            return None;
        }
        let profile = component.parent()?;
        let triple = profile.parent()?;
        let target_dir = triple.parent()?;
        let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        let project = Self {
            component: component.to_owned(),
            manifest: target_dir.ancestors().skip(1).map(|folder| folder.join(MANIFEST)).find(|manifest| is_file(manifest))?,
            target_dir: target_dir.to_owned(),
            triple: name(triple)?,
            profile: name(profile)?,
            artifact: component.file_stem()?.to_str()?.to_owned(),
        };
        project.triple.starts_with(TARGET_PREFIX).then_some(project)
    }

    /// The folder of its manifest.
    pub(super) fn root(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new(""))
    }

    /// Files of the workspace that decide how a package is built, wherever it lies.
    pub(super) fn workspace_files(&self) -> impl Iterator<Item = PathBuf> {
        WORKSPACE_FILES.iter().map(|file| self.root().join(file))
    }

    /// What is built, in a word.
    pub(super) fn name(&self) -> &str {
        &self.artifact
    }

    /// What asks cargo for the packages of the workspace. It reads manifests alone and needs no network.
    pub(super) fn metadata_arguments(&self) -> Vec<String> {
        let fixed = ["metadata", "--format-version", "1", "--no-deps", "--color", "never", "--manifest-path"];
        fixed.iter().map(|word| (*word).to_owned()).chain([self.manifest.display().to_string()]).collect()
    }

    /// What makes the component of `package`. The target folder is said, so that it goes where the configuration looks for it, whatever
    /// the environment says.
    pub(super) fn build_arguments(&self, package: &Package) -> Vec<String> {
        let profile = match &*self.profile {
            DEBUG => vec![],
            "release" => vec!["--release"],
            profile => vec!["--profile", profile],
        };
        let (target_dir, manifest) = (self.target_dir.display().to_string(), package.manifest.display().to_string());
        let fixed = ["build", "--quiet", "--color", "never", "--target", &self.triple, "--target-dir", &target_dir];
        fixed.into_iter().chain(["--manifest-path", &manifest]).chain(profile).map(str::to_owned).collect()
    }

    /// The command as a person would type it.
    pub(super) fn command_line(&self) -> String {
        let profile = match &*self.profile {
            DEBUG => String::new(),
            "release" => " --release".to_owned(),
            profile => format!(" --profile {profile}"),
        };
        format!("cargo build{profile} --target {}", self.triple)
    }

    /// The package among those that `cargo metadata` names.
    ///
    /// # Errors
    /// [`PackageError`].
    pub(super) fn package(&self, metadata: &[u8]) -> Result<Package, PackageError> {
        let Metadata { packages } = serde_json::from_slice(metadata)?;
        let making = packages.iter().find(|package| package.targets.iter().any(|target| self.is_made_by(target)));
        let making = making.ok_or_else(|| PackageError::NoPackage { manifest: self.manifest.clone(), artifact: self.artifact.clone() })?;
        Ok(Package { manifest: making.manifest_path.clone(), folders: self.folders(making, &packages) })
    }

    /// A library's file has `_` where its name has `-`; a program's has its name.
    fn is_made_by(&self, target: &Target) -> bool {
        let is = |kind: &str| target.kind.iter().any(|has| has == kind);
        (is("cdylib") && target.name.replace('-', "_") == self.artifact) || (is("bin") && target.name == self.artifact)
    }

    /// Where the sources of `package` lie: its own, and those it reaches by path, as far as the workspace's manifests tell.
    fn folders(&self, package: &PackageInfo, all: &[PackageInfo]) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::new();
        let mut open = vec![package.folder()];
        while let Some(folder) = open.pop() {
            folders.insert(folder.clone());
            let of_here = all.iter().filter(|package| package.folder() == folder).flat_map(|package| &package.dependencies);
            open.extend(of_here.filter_map(|dependency| dependency.path.clone()).filter(|path| !folders.contains(path)));
        }
        folders
    }
}

/// What is needed of cargo's documented form, version 1.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<PackageInfo>,
}

#[derive(Debug, Deserialize)]
struct PackageInfo {
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    path: Option<PathBuf>,
}

impl PackageInfo {
    fn folder(&self) -> PathBuf {
        self.manifest_path.parent().unwrap_or(Path::new("")).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project(component: &str) -> Option<CargoProject> {
        CargoProject::with(Path::new(component), |path| path == Path::new("/app/Cargo.toml"))
    }

    #[test]
    fn the_path_of_a_component_says_who_makes_it() {
        let made = project("/app/target/wasm32-wasip2/release/order_triage.wasm").unwrap();
        assert_eq!((made.root(), made.name(), &*made.triple), (Path::new("/app"), "order_triage", "wasm32-wasip2"));
        assert_eq!(made.target_dir, Path::new("/app/target"));
        assert_eq!(made.command_line(), "cargo build --release --target wasm32-wasip2");
        // A target folder further down belongs to the manifest above it.
        assert!(project("/app/build/target/wasm32-wasip2/debug/a.wasm").is_some());
        for elsewhere in [
            "/app/order_triage.wasm",
            "/app/target/release/a.wasm",
            "/app/target/wasm32-wasip2/release/a.wat",
            "/other/target/wasm32-wasip2/release/a.wasm",
            "a.wasm",
            "/",
        ] {
            assert_eq!(project(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn the_command_builds_the_package_with_the_profile_of_the_folder_into_the_folder_of_the_component() {
        let package = Package { manifest: "/app/fn/Cargo.toml".into(), folders: BTreeSet::new() };
        for (profile, words) in [("release", &["--release"][..]), ("debug", &[]), ("small", &["--profile", "small"])] {
            let made = project(&format!("/app/target/wasm32-wasip2/{profile}/a.wasm")).unwrap();
            let arguments = made.build_arguments(&package);
            let fixed = ["build", "--quiet", "--color", "never", "--target", "wasm32-wasip2", "--target-dir", "/app/target"];
            let expected: Vec<_> = fixed.iter().chain(&["--manifest-path", "/app/fn/Cargo.toml"]).chain(words).copied().collect();
            assert_eq!(arguments, expected);
        }
    }

    #[test]
    fn the_package_is_the_one_whose_library_or_program_has_the_name() {
        let metadata = json!({ "packages": [
            { "manifest_path": "/app/host/Cargo.toml", "targets": [{ "name": "order_triage", "kind": ["lib"] }], "dependencies": [] },
            {
                "manifest_path": "/app/fn/Cargo.toml",
                "targets": [{ "name": "order-triage", "kind": ["cdylib"] }, { "name": "other-one", "kind": ["bin"] }],
                "dependencies": [{ "name": "shared", "path": "/app/shared" }, { "name": "serde", "path": null }, { "name": "x" }],
            },
            {
                "manifest_path": "/app/shared/Cargo.toml", "targets": [],
                "dependencies": [{ "name": "sdk", "path": "/sdk" }, { "name": "back", "path": "/app/fn" }],
            },
        ]});
        let metadata = metadata.to_string().into_bytes();
        let made = |artifact: &str| project(&format!("/app/target/wasm32-wasip2/release/{artifact}.wasm")).unwrap().package(&metadata);
        let package = made("order_triage").unwrap();
        assert_eq!(package.manifest, Path::new("/app/fn/Cargo.toml"));
        let folders: Vec<_> = package.folders.iter().map(|folder| folder.to_str().unwrap()).collect();
        assert_eq!(folders, ["/app/fn", "/app/shared", "/sdk"]);
        assert_eq!(made("other-one").unwrap().manifest, package.manifest);
        assert!(matches!(made("other_one"), Err(PackageError::NoPackage { .. })));
        assert!(matches!(project("/app/target/wasm32-wasip2/release/a.wasm").unwrap().package(b"[]"), Err(PackageError::Unreadable(_))));
    }
}
