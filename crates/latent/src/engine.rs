//! How this program opens the embedded engine: the one place where its options are chosen.

use std::path::Path;

use latent_bridge::embedded::EngineOptions;

/// Options under which others see `holder` as the owner of the directory. `manifest` is the file that a command brings the directory to;
/// what that manifest refers to lies in its folder. A directory that is opened as it is has copies of its own and needs none.
pub(crate) fn engine_options(holder: &str, manifest: Option<&Path>) -> EngineOptions {
    let options = EngineOptions { holder: holder.to_owned(), ..EngineOptions::default() };
    // A bare file name has the empty path as its parent, which names the working directory.
    match manifest.and_then(Path::parent) {
        Some(folder) => options.with_manifest_folder(folder),
        None => options,
    }
}
