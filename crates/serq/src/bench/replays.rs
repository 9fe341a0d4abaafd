//! `bench replays`: recorded runs of real engines, replayed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use serq::import;
use serq::replay::{self, Comparison, Stats};

use super::Found;
use super::sheet::Sheet;
use crate::cli::ReplaysArgs;
use crate::load::{self, Refused};
use crate::out::{Done, Failure};
use crate::{check, fault};

/// Where the project's own recordings are.
const OWN: &str = "examples/replays";

/// A recording's `replay.json`. Paths are relative to it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    program: Option<PathBuf>,
    #[serde(default)]
    trace: Option<PathBuf>,
    #[serde(default)]
    tables: Option<String>,
    /// Settings that no file of the recording tells.
    #[serde(default)]
    set: Vec<String>,
    /// Largest errors of means and of the other figures, per cent.
    #[serde(default)]
    within: Option<(f64, f64)>,
}

pub(super) fn run(args: &ReplaysArgs) -> Done<Found> {
    let folders = if args.folders.is_empty() { own()? } else { args.folders.clone() };
    let mut found = Found { sheets: Vec::new(), data: json!([]), broken: Vec::new() };
    let mut data = Vec::new();
    for folder in &folders {
        let (sheet, value, broken) = one(args, folder)?;
        found.sheets.push(sheet);
        data.push(value);
        found.broken.extend(broken);
    }
    found.data = data.into();
    Ok(found)
}

/// Folders with recordings, of a checkout.
fn own() -> Done<Vec<PathBuf>> {
    let entries = std::fs::read_dir(OWN).map_err(|e| {
        let text =
            format!("error: cannot read {OWN}: {e}\n  = help: name the folder of a recording");
        Failure::usage(text)
    })?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.join("requests.jsonl").is_file())
        .collect();
    folders.sort();
    Ok(folders)
}

fn wrong(text: impl std::fmt::Display) -> Failure {
    Failure::program(format!("error: {text}"))
}

fn case(folder: &Path) -> Done<Case> {
    let path = folder.join("replay.json");
    if !path.exists() {
        return Ok(Case::default());
    }
    let text =
        std::fs::read_to_string(&path).map_err(|e| wrong(format!("{}: {e}", path.display())))?;
    serde_json::from_str(&text).map_err(|e| wrong(format!("{}: {e}", path.display())))
}

fn one(args: &ReplaysArgs, folder: &Path) -> Done<(Sheet, serde_json::Value, Vec<String>)> {
    let case = case(folder)?;
    let inside = |p: &Path| folder.join(p);
    let program = args.program.clone().or_else(|| case.program.as_deref().map(inside));
    let program = program.unwrap_or_else(|| Path::new(OWN).join("vllm.sq"));
    let tables = args
        .tables
        .clone()
        .or_else(|| case.tables.as_deref().map(|t| inside(Path::new(t)).display().to_string()));
    let log = replay::read_log(&folder.join("requests.jsonl")).map_err(wrong)?;
    let trace = args.trace.clone().or_else(|| case.trace.as_deref().map(inside));
    let prompts = trace
        .map(|path| import::read(&path, &import::Options::default()))
        .transpose()
        .map_err(wrong)?;
    // The constants are those of the program as it stands; their values come then.
    let plain = load::load_with(&program, &[], tables.as_deref()).map_err(Refused::failure)?;
    let mut sets = Vec::new();
    let meta = folder.join("meta.json");
    if meta.exists() {
        sets = replay::read_settings(&meta, &plain.constants).map_err(wrong)?;
    }
    for more in case.set.iter().chain(&args.sets) {
        let name = more.split('=').next().unwrap_or("").trim();
        sets.retain(|s| s.split('=').next() != Some(name));
        sets.push(more.clone());
    }
    let loaded = load::load_with(&program, &sets, tables.as_deref()).map_err(Refused::failure)?;
    check::warn(&loaded.warnings, &loaded.sources);
    let (ready, log) = replay::prepare(loaded.program, &log, prompts.as_ref()).map_err(wrong)?;
    let began = Instant::now();
    let replayed =
        replay::play(&ready).map_err(|e| fault::failure(&e, &program, &loaded.sources))?;
    let seconds = began.elapsed().as_secs_f64();
    let span = replayed.iter().flatten().fold(0.0_f64, |last, r| last.max(r.last));
    let comparison = replay::compare(&log, &replayed);
    let name = case.name.clone().unwrap_or_else(|| folder.display().to_string());
    let broken = broken(&name, &comparison, case.within);
    let value = json!({
        "name": name, "set": sets, "simulated_s": span, "took_s": seconds, "comparison": comparison,
    });
    Ok((sheet(&name, &comparison, &sets, span, seconds), value, broken))
}

/// Per cent by which the simulation is off.
fn off(measured: f64, simulated: f64) -> f64 {
    (simulated / measured - 1.0) * 100.0
}

fn figures<'s>(m: &'s Stats, s: &'s Stats) -> impl Iterator<Item = (&'static str, f64, f64)> + 's {
    m.all().into_iter().zip(s.all()).map(|((name, m), (_, s))| (name, m, s))
}

fn sheet(name: &str, c: &Comparison, sets: &[String], span: f64, seconds: f64) -> Sheet {
    let mut rows = Vec::new();
    for line in &c.lines {
        for (figure, measured, simulated) in figures(&line.measured, &line.simulated) {
            rows.push(vec![
                format!("{} {figure}", line.measure),
                format!("{measured:.1}"),
                format!("{simulated:.1}"),
                format!("{:+.2} %", off(measured, simulated)),
            ]);
        }
    }
    let answered = c.requests - c.unanswered;
    Sheet {
        title: format!("{name}: {answered} of {} requests, milliseconds", c.requests),
        columns: ["", "measured", "simulated", "error"].map(str::to_owned).to_vec(),
        rows,
        notes: vec![
            format!("with {}", sets.join(", ")),
            format!("{span:.1} s of the engine in {seconds:.2} s"),
        ],
    }
}

/// What is further off than the recording's `within` allows.
fn broken(name: &str, c: &Comparison, within: Option<(f64, f64)>) -> Vec<String> {
    let mut all = Vec::new();
    if c.unanswered > 0 {
        all.push(format!("{name}: {} requests are not answered", c.unanswered));
    }
    let Some((means, tails)) = within else { return all };
    for line in &c.lines {
        for (figure, measured, simulated) in figures(&line.measured, &line.simulated) {
            let bound = match figure {
                "mean" => means,
                "P99" => tails,
                _ => continue,
            };
            let off = off(measured, simulated);
            if !(off.abs() <= bound) {
                all.push(format!(
                    "{name}: {} {figure} is off by {off:+.2} %, not {bound} %",
                    line.measure
                ));
            }
        }
    }
    all
}
