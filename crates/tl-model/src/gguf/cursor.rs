//! A buffered forward reader that knows how many bytes are left.

use super::{GgufError, Problem};
use crate::source::ReadAt;

const BUFFER: usize = 64 * 1024;

pub(super) struct Cursor<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    pos: u64,
    buf: Vec<u8>,
    buf_start: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a dyn ReadAt) -> Self {
        Self { source, size: source.size(), pos: 0, buf: Vec::new(), buf_start: 0 }
    }

    /// Byte position of the next read.
    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    fn left(&self) -> u64 {
        self.size - self.pos
    }

    pub(super) fn fail(&self, what: &str, problem: Problem) -> GgufError {
        GgufError { what: what.to_owned(), offset: self.pos, problem }
    }

    /// A count of things that take at least `min_bytes` each: refused when they cannot all follow.
    pub(super) fn count(&mut self, what: &str, min_bytes: u64) -> Result<u64, GgufError> {
        let at = self.pos;
        let count = self.u64(what)?;
        if count > self.left() / min_bytes {
            let problem = Problem::Count(count);
            return Err(GgufError { what: what.to_owned(), offset: at, problem });
        }
        Ok(count)
    }

    /// The next `n` bytes; nothing is allocated when the file is shorter.
    pub(super) fn bytes(&mut self, what: &str, n: u64) -> Result<Vec<u8>, GgufError> {
        self.need(what, n)?;
        let mut out = vec![0; n as usize];
        self.fill(what, &mut out)?;
        Ok(out)
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String, GgufError> {
        let n = self.u64(what)?;
        let at = self.pos;
        String::from_utf8(self.bytes(what, n)?).map_err(|_| GgufError {
            what: what.to_owned(),
            offset: at,
            problem: Problem::Utf8,
        })
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        self.need(what, N as u64)?;
        let mut out = [0; N];
        self.fill(what, &mut out)?;
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn need(&self, what: &str, n: u64) -> Result<(), GgufError> {
        let left = self.left();
        if n > left {
            return Err(self.fail(what, Problem::TooShort { needed: n, left }));
        }
        Ok(())
    }

    /// Fills `out`; the caller has checked that the bytes are there.
    fn fill(&mut self, what: &str, out: &mut [u8]) -> Result<(), GgufError> {
        if out.len() >= BUFFER {
            self.source.read_exact_at(out, self.pos).map_err(|e| self.fail(what, e.into()))?;
        } else {
            let from = self.pos - self.buf_start;
            if from + out.len() as u64 > self.buf.len() as u64 {
                let n = self.left().min(BUFFER as u64) as usize;
                self.buf.resize(n, 0);
                self.buf_start = self.pos;
                if let Err(e) = self.source.read_exact_at(&mut self.buf, self.pos) {
                    self.buf.clear();
                    return Err(self.fail(what, e.into()));
                }
            }
            let from = (self.pos - self.buf_start) as usize;
            out.copy_from_slice(&self.buf[from..from + out.len()]);
        }
        self.pos += out.len() as u64;
        Ok(())
    }
}
