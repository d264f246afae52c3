//! `latent new`: a function's project that builds and runs as it is made.

mod project;
mod sdk;

use clap::{Args, ValueEnum};
use serde_json::json;

pub(crate) use project::ProjectError;
use project::{Project, ProjectName};

use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent new`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent new triage --lang rust")]
pub(crate) struct NewArgs {
    /// Name of the function and of the new folder
    name: String,
    /// Language it is written in
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
}

/// Languages of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Rust
    Rust,
    /// JavaScript (not built in this version)
    Js,
    /// Python (not built in this version)
    Python,
}

/// Makes the project in a new folder of the working directory.
///
/// # Errors
/// [`CliError::Project`], [`CliError::NotBuilt`].
pub(crate) fn new(args: &NewArgs, output: &mut Output) -> Result<(), CliError> {
    let not_built = |language: &str| CliError::NotBuilt { what: format!("a {language} project"), instead: "use --lang rust" };
    match args.lang {
        Language::Rust => {}
        Language::Js => return Err(not_built("JavaScript")),
        Language::Python => return Err(not_built("Python")),
    }
    let project = Project::rust(ProjectName::parse(&args.name)?);
    let files = project.write(std::path::Path::new(&args.name))?;
    let name = &args.name;
    output.line(&json!({ "name": name, "files": files }), || {
        format!(
            "made {name}: {files} files. Next:\n  cd {name}\n  cargo build --release --target wasm32-wasip2\n  latent run -c latent.toml\n\
             or, while you write it, `latent dev .` instead of the last two;\n\
             and from another terminal, in the same folder:\n  latent bus publish {name}.in --file events.jsonl --key-pointer /user"
        )
    })
}
