//! Samples, requests and iterations to disk, as they come.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serq_lang::ir::Program;
use serq_sim::{Iteration, Request, Sample};

use crate::cli::RunArgs;

/// The files of one run: one per observe, `NAME.csv`, with the columns time, session, turn, value;
/// and those of requests and iterations, whose names in a folder no observe can have.
#[derive(Debug, Default)]
pub(crate) struct Csv {
    observes: Vec<Out>,
    requests: Vec<Out>,
    iterations: Option<Out>,
    /// Per stage: name and index within its family.
    stages: Vec<String>,
    /// The first thing that went wrong; the run goes on without files, and fails at its end.
    error: Option<(PathBuf, io::Error)>,
}

#[derive(Debug)]
struct Out {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Out {
    fn create(path: PathBuf, head: &str) -> Result<Self, (PathBuf, io::Error)> {
        let begin = || {
            let mut file = BufWriter::new(File::create(&path)?);
            writeln!(file, "{head}")?;
            Ok(file)
        };
        match begin() {
            Ok(file) => Ok(Out { path, file }),
            Err(e) => Err((path, e)),
        }
    }
}

const REQUESTS: &str = "session,turn,start,first,last,tokens,ttft,tpot,e2e,longest_gap";
const ITERATIONS: &str = "stage,time,duration,session,turn,mode,tokens";

impl Csv {
    /// The files that the command line asks for, those for a folder in `dir`.
    pub(crate) fn create(
        args: &RunArgs,
        dir: Option<&Path>,
        program: &Program,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let mut csv = Csv::default();
        if let Some(dir) = dir {
            std::fs::create_dir_all(dir).map_err(|e| (dir.to_owned(), e))?;
            for name in &program.observes {
                let path = dir.join(format!("{name}.csv"));
                csv.observes.push(Out::create(path, "time,session,turn,value")?);
            }
            csv.requests.push(Out::create(dir.join("by-request.csv"), REQUESTS)?);
            if args.iterations {
                csv.iterations = Some(Out::create(dir.join("by-iteration.csv"), ITERATIONS)?);
                csv.stages = labels(program);
            }
        }
        if let Some(path) = &args.requests {
            csv.requests.push(Out::create(path.clone(), REQUESTS)?);
        }
        Ok(csv)
    }

    pub(crate) fn wants_iterations(&self) -> bool {
        self.iterations.is_some()
    }

    pub(crate) fn sample(&mut self, sample: &Sample) {
        let Sample { time, session, turn, value, .. } = sample;
        let out = self.observes.get_mut(sample.observe);
        write(&mut self.error, out, format_args!("{time},{session},{turn},{value}"));
    }

    pub(crate) fn request(&mut self, r: &Request) {
        let Request { session, turn, start, first, last, tokens, longest_gap } = r;
        // One token has no time per token: the field is empty.
        let tpot = if *tokens > 1 { r.tpot().to_string() } else { String::new() };
        let (ttft, e2e) = (r.ttft(), r.e2e());
        for out in &mut self.requests {
            write(
                &mut self.error,
                Some(out),
                format_args!(
                    "{session},{turn},{start},{first},{last},{tokens},{ttft},{tpot},{e2e},\
                     {longest_gap}"
                ),
            );
        }
    }

    /// One row per resident that gets tokens.
    pub(crate) fn iteration(&mut self, i: &Iteration<'_>) {
        let Iteration { time, duration, .. } = i;
        let stage = self.stages.get(i.stage).map_or("", String::as_str);
        for t in i.tokens {
            let mode = if t.prefill { "prefill" } else { "decode" };
            let (session, turn, count) = (t.session, t.turn, t.count);
            write(
                &mut self.error,
                self.iterations.as_mut(),
                format_args!("{stage},{time},{duration},{session},{turn},{mode},{count}"),
            );
        }
    }

    pub(crate) fn finish(mut self) -> Result<(), (PathBuf, io::Error)> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let all = self.observes.iter_mut().chain(&mut self.requests).chain(&mut self.iterations);
        for out in all {
            out.file.flush().map_err(|e| (out.path.clone(), e))?;
        }
        Ok(())
    }
}

fn write(
    error: &mut Option<(PathBuf, io::Error)>,
    out: Option<&mut Out>,
    row: std::fmt::Arguments<'_>,
) {
    let Some(out) = out.filter(|_| error.is_none()) else { return };
    if let Err(e) = writeln!(out.file, "{row}") {
        *error = Some((out.path.clone(), e));
    }
}

/// `E`, or `E[0]` in a family.
fn labels(program: &Program) -> Vec<String> {
    let families = program.stages.chunk_by(|a, b| a.name == b.name);
    families
        .flat_map(|family| {
            family.iter().enumerate().map(|(k, stage)| {
                if family.len() > 1 { format!("{}[{k}]", stage.name) } else { stage.name.clone() }
            })
        })
        .collect()
}
