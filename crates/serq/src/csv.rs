//! Samples to disk, as they come.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use serq_lang::ir::Program;
use serq_sim::Sample;

/// One file per observe, `NAME.csv`, with the columns time, session, turn, value.
#[derive(Debug)]
pub(crate) struct Csv {
    files: Vec<BufWriter<File>>,
    /// The first thing that went wrong; the run goes on without files, and fails at its end.
    error: Option<io::Error>,
}

impl Csv {
    pub(crate) fn create(dir: &Path, program: &Program) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut files = Vec::new();
        for name in &program.observes {
            let mut file = BufWriter::new(File::create(dir.join(format!("{name}.csv")))?);
            writeln!(file, "time,session,turn,value")?;
            files.push(file);
        }
        Ok(Csv { files, error: None })
    }

    pub(crate) fn write(&mut self, sample: &Sample) {
        let Some(file) = self.files.get_mut(sample.observe).filter(|_| self.error.is_none()) else {
            return;
        };
        let Sample { time, session, turn, value, .. } = sample;
        if let Err(e) = writeln!(file, "{time},{session},{turn},{value}") {
            self.error = Some(e);
        }
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(e) = self.error {
            return Err(e);
        }
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }
}
