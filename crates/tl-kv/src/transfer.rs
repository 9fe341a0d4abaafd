//! One block out of a pool and one block into a pool, with the pool's lock held for bookkeeping
//! only: the copy and the checksum run beside it.

use bytes::BufMut;

use crate::crc::Crc32c;
use crate::envelope::{EnvHeader, EnvelopeView, RecordView, put};
use crate::error::KvError;
use crate::held::Held;
use crate::pool::{SharedKv, lock};
use crate::slabs::Slabs;

/// Whether an import reads the block back from the pool and compares it with the checksum the
/// sender computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Compare what the pool holds, not what the network delivered.
    #[default]
    ReadBack,
    /// Trust the copy.
    Skip,
}

/// A block that has arrived.
#[derive(Debug)]
pub struct Imported {
    /// The reference to it.
    pub held: Held,
    /// The pool had a block of that name and these bytes: the reference is to that one.
    pub shared: bool,
}

impl Imported {
    /// The block's id.
    pub fn id(&self) -> u32 {
        self.held.ids()[0]
    }
}

/// The one-block envelope of a block to which the caller holds a reference, in one copy and one
/// checksum pass. The record carries the hash the block is registered under, or 0.
///
/// EINVAL for a block without a reference or with fill 0, EBUSY for one being written.
pub fn export_block(pool: &SharedKv, id: u32) -> Result<Vec<u8>, KvError> {
    let (slabs, hash, fill) = {
        let pool = lock(pool);
        (pool.slabs(), pool.hash_of(id), pool.fill(id)?)
    };
    let mut out = Vec::with_capacity(EnvHeader::v1(slabs.cfg(), 1).envelope_bytes());
    write_block(&slabs, id, hash, fill, &mut out)?;
    Ok(out)
}

/// Appends the one-block envelope of a block straight from its storage to `out`. The caller holds
/// a reference to the block and knows its `hash` (0 for none) and `fill`, and has made room for
/// [`EnvHeader::envelope_bytes`], so that a buffer that grows does so once.
pub fn write_block(
    slabs: &Slabs,
    id: u32,
    hash: u64,
    fill: u32,
    out: &mut impl BufMut,
) -> Result<(), KvError> {
    let cfg = slabs.cfg();
    if fill == 0 || fill > cfg.block_tokens {
        return Err(KvError::invalid(format!(
            "block {id} has fill {fill}, expected 1 to {}",
            cfg.block_tokens
        )));
    }
    if hash != 0 && fill != cfg.block_tokens {
        return Err(KvError::invalid(format!("block {id} has a hash but is not full")));
    }
    let block = slabs.read(id)?;
    let header = EnvHeader::v1(cfg, 1);
    let mut writer = put::Writer::new(out, &header);
    writer.record_head(hash, fill);
    writer.block(cfg, block.all(), fill);
    writer.finish();
    Ok(())
}

/// Brings the block of a checked one-block envelope into the pool and registers it under `hash`
/// (0 for a partial tail), with the read-back proof. See [`import_block_with`].
pub fn import_block(
    pool: &SharedKv,
    view: &EnvelopeView<'_>,
    hash: u64,
) -> Result<Imported, KvError> {
    import_block_with(pool, view, hash, Proof::ReadBack)
}

/// Brings the block of a checked one-block envelope into the pool.
///
/// `hash` is the name the sender gives the block; the envelope may say 0 where the sender had
/// not registered it. When the pool has a block of that name, or gets one while this one is
/// being copied, and its bytes are these, the result is a reference to that one. When its bytes
/// are others (two prompts of one hash, or a sender that lies), this copy stays, unregistered:
/// whoever resumes gets what was sent. [`KvPool::conflicts`](crate::KvPool::conflicts) counts it.
///
/// EFORMAT for an envelope of more or fewer blocks than one or a name that does not fit, ESHAPE
/// for another pool's shape, EFULL without room, EPROOF when the pool holds other bytes than
/// were sent. On any error nothing stays allocated.
pub fn import_block_with(
    pool: &SharedKv,
    view: &EnvelopeView<'_>,
    hash: u64,
    proof: Proof,
) -> Result<Imported, KvError> {
    let record = sole_record(view, hash)?;
    let slabs = {
        let books = lock(pool);
        if *view.header() != EnvHeader::v1(books.cfg(), 1) {
            return Err(KvError::shape("the envelope was not checked against this pool"));
        }
        books.slabs()
    };
    if let Found::Same(held) = find(pool, &slabs, hash, record.payload)? {
        return Ok(Imported { held, shared: true });
    }
    let held = Held::alloc(pool, 1)?;
    let id = held.ids()[0];
    let mut block = slabs.write(id)?;
    match proof {
        Proof::ReadBack => copy_and_prove(block.all_mut(), view, record.payload)?,
        Proof::Skip => put::into_block(block.all_mut(), record.payload),
    }
    drop(block);
    // Again when a block of this name came and went in between.
    while !publish(pool, id, record.n_tokens, hash)? {
        match find(pool, &slabs, hash, record.payload)? {
            Found::Same(first) => {
                return Ok(Imported { held: first, shared: true });
            }
            Found::Nothing => {}
            Found::Other => {
                lock(pool).note_conflict();
                break;
            }
        }
    }
    Ok(Imported { held, shared: false })
}

enum Found {
    /// No block of that name.
    Nothing,
    /// A block of that name and these bytes.
    Same(Held),
    /// A block of that name and other bytes.
    Other,
}

fn find(pool: &SharedKv, slabs: &Slabs, hash: u64, payload: &[u8]) -> Result<Found, KvError> {
    let Some(id) = lock(pool).lookup(hash) else {
        return Ok(Found::Nothing);
    };
    let held = Held::adopt(pool, vec![id]);
    let same = put::is_block(slabs.read(id)?.all(), payload);
    Ok(if same { Found::Same(held) } else { Found::Other })
}

fn sole_record<'a>(view: &EnvelopeView<'a>, hash: u64) -> Result<RecordView<'a>, KvError> {
    let record = view.record(0).filter(|_| view.len() == 1).ok_or_else(|| {
        KvError::format(format!("envelope of {} blocks, expected one", view.len()))
    })?;
    if record.hash != 0 && record.hash != hash {
        return Err(KvError::format(format!(
            "envelope of block {:#018x} where {hash:#018x} was announced",
            record.hash
        )));
    }
    if hash != 0 && record.n_tokens != view.header().block_tokens {
        return Err(KvError::format(format!(
            "block {hash:#018x} has {} of {} positions; only full blocks have a hash",
            record.n_tokens,
            view.header().block_tokens
        )));
    }
    Ok(record)
}

/// The sender's checksum covers prefix and payload; here the payload is what the pool holds.
fn copy_and_prove(
    block: &mut [u16],
    view: &EnvelopeView<'_>,
    payload: &[u8],
) -> Result<(), KvError> {
    let mut crc = Crc32c::new();
    crc.update(view.prefix());
    put::into_block_summed(block, payload, &mut crc);
    let (got, sent) = (crc.value(), view.crc());
    if got != sent {
        return Err(KvError::proof(format!("reads back as {got:#010x}, {sent:#010x} was sent")));
    }
    Ok(())
}

/// Sets the fill and registers; `false` when the name is taken, and then nothing is registered.
fn publish(pool: &SharedKv, id: u32, fill: u32, hash: u64) -> Result<bool, KvError> {
    let mut books = lock(pool);
    books.set_fill(id, fill)?;
    if hash == 0 { Ok(true) } else { books.register(id, hash) }
}
