//! Whole envelopes out of and into a pool, under its lock.

use super::KvPool;
use crate::envelope::{EnvHeader, EnvelopeView, put};
use crate::error::KvError;

impl KvPool {
    /// One envelope of these blocks. Positions past a block's fill are zero bytes, whatever the
    /// block held before.
    ///
    /// EINVAL for a block without a reference or with fill 0, EBUSY for one being written.
    pub fn export(&self, ids: &[u32]) -> Result<Vec<u8>, KvError> {
        for &id in ids {
            if self.used(id)?.fill == 0 {
                return Err(KvError::invalid(format!("block {id} is empty, nothing to export")));
            }
        }
        let n = u32::try_from(ids.len())
            .map_err(|_| KvError::invalid(format!("{} blocks in one envelope", ids.len())))?;
        let header = EnvHeader::v1(&self.cfg, n);
        let mut out =
            Vec::with_capacity(header.checked_envelope_bytes().ok_or_else(|| {
                KvError::invalid(format!("{n} blocks do not fit into one envelope"))
            })?);
        let mut writer = put::Writer::new(&mut out, &header);
        for &id in ids {
            let meta = self.used(id)?;
            writer.record_head(meta.hash, meta.fill);
            writer.block(&self.cfg, self.slabs.read(id)?.all(), meta.fill);
        }
        writer.finish();
        Ok(out)
    }

    /// Allocates blocks for every record of an envelope, copies them in and registers the full
    /// ones that carry a hash, unless that hash is here already. All or nothing.
    ///
    /// EFORMAT or ESHAPE for an envelope that is refused, EFULL when there is no room.
    pub fn import(&mut self, buf: &[u8]) -> Result<Vec<u32>, KvError> {
        let view = EnvelopeView::parse(buf, Some(&self.cfg))?;
        let ids = self.alloc(view.len())?;
        let copied = ids.iter().zip(view.records()).try_for_each(|(&id, record)| {
            put::into_block(self.slabs.write(id)?.all_mut(), record.payload);
            self.set_fill(id, record.n_tokens)?;
            if record.hash != 0 {
                self.register(id, record.hash)?;
            }
            Ok(())
        });
        match copied {
            Ok(()) => Ok(ids),
            Err(error) => {
                for &id in ids.iter().rev() {
                    self.release(id)?;
                }
                Err(error)
            }
        }
    }
}
