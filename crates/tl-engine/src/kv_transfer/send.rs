//! Moving one prompt's blocks to a decode engine.

use tl_kv::handoff::{BlockSend, SendAction, SendFact, SendPlan, SendStats};
use tl_kv::{Held, SharedKv, lock};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tonic::Code;

use super::{KV_FORMAT, KvTransport, Outgoing, TransferError};

/// What one transfer moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// Chunks of the push that succeeded: one per block.
    pub chunks: usize,
    /// Of those, the ones with a payload.
    pub sent: usize,
    /// Of those, the ones that named a block the receiver had.
    pub deduped: usize,
    /// Bytes of the payloads.
    pub payload_bytes: usize,
}

/// The chunks of a push of blocks `ids`, to each of which the caller holds a
/// reference. The first `hashes.len()` blocks are full and named; those `present`
/// travel without payload.
///
/// INVALID_ARGUMENT when the lists and the pool's books do not fit together.
pub fn build_chunks(
    pool: &SharedKv,
    handle_id: &str,
    ids: &[u32],
    hashes: &[u64],
    present: &[bool],
) -> Result<Vec<KvChunk>, TransferError> {
    if hashes.len() > ids.len() || present.len() > hashes.len() {
        return Err(TransferError::new(
            Code::InvalidArgument,
            format!("{} blocks, {} hashes, {} answers", ids.len(), hashes.len(), present.len()),
        ));
    }
    let blocks: Vec<BlockSend> = (0..ids.len())
        .map(|i| match (hashes.get(i).copied().unwrap_or(0), present.get(i)) {
            (0, _) => BlockSend::Tail,
            (hash, Some(true)) => BlockSend::Dedup { hash },
            (hash, _) => BlockSend::Send { hash },
        })
        .collect();
    Outgoing::new(&retained(pool, ids)?, handle_id, &blocks)?.chunks()
}

/// [`transfer_held`] for blocks that the caller holds by other means. References of
/// its own keep them until the transfer has ended.
pub async fn transfer(
    t: &dyn KvTransport,
    target: &str,
    pool: &SharedKv,
    handle_id: &str,
    ids: &[u32],
    hashes: &[u64],
) -> Result<TransferStats, TransferError> {
    let held = retained(pool, ids)?;
    transfer_held(t, target, &held, handle_id, hashes).await
}

/// References of our own to blocks that the caller holds.
fn retained(pool: &SharedKv, ids: &[u32]) -> Result<Held, TransferError> {
    let mut held = Held::empty(pool);
    for &id in ids {
        let retained = lock(pool).retain(id);
        retained.map_err(|e| TransferError::new(Code::Internal, e.to_string()))?;
        held.push(id);
    }
    Ok(held)
}

/// Moves blocks to the decode engine at `target`, where they wait under `handle_id`.
///
/// Asks which of the named blocks it has, sends the others, and sends everything once
/// more, in a new stream, when one it had is gone by the time the push arrives.
///
/// On an error the receiver holds nothing, with one exception that the caller deals
/// with: where the answer is lost rather than negative, the push may have completed,
/// and [`KvTransport::release`] undoes it. The same when the future is dropped.
pub async fn transfer_held(
    t: &dyn KvTransport,
    target: &str,
    held: &Held,
    handle_id: &str,
    hashes: &[u64],
) -> Result<TransferStats, TransferError> {
    let mut plan = SendPlan::new(handle_id, held.len(), hashes.to_vec());
    let mut payload_bytes = 0;
    // What the peer said last, of which the plan keeps only the code.
    let mut heard: Option<TransferError> = None;
    let mut action = plan.start();
    loop {
        let fact = match action {
            SendAction::Ask => match ask(t, target, hashes).await {
                Ok(present) => SendFact::Present(present),
                Err(error) => SendFact::AskFailed(kept(&mut heard, error)),
            },
            SendAction::Push(blocks) => {
                let push = Outgoing::new(held, handle_id, &blocks)?;
                payload_bytes = push.payload_bytes();
                let _fence = push.fence_on_drop();
                match t.push_blocks(target, push.clone()).await {
                    Ok(KvAck { handle_id, blocks_received, blocks_deduped }) => SendFact::Acked {
                        handle_id,
                        received: blocks_received,
                        deduped: blocks_deduped,
                    },
                    Err(error) => SendFact::PushFailed(kept(&mut heard, error)),
                }
            }
            SendAction::Done(SendStats { chunks, sent, deduped, pushes }) => {
                if pushes > 1 {
                    tracing::debug!(target, handle_id, "a block was evicted meanwhile: sent all");
                }
                return Ok(TransferStats {
                    chunks: chunks as usize,
                    sent: sent as usize,
                    deduped: deduped as usize,
                    payload_bytes,
                });
            }
            SendAction::Fail { code, reason } => {
                return Err(heard.unwrap_or_else(|| {
                    let code = Code::from_i32(code as i32);
                    TransferError::new(code, format!("{target}: {reason}"))
                }));
            }
            SendAction::Nothing => {
                return Err(TransferError::new(Code::Internal, "the transfer had ended already"));
            }
        };
        if matches!(fact, SendFact::Acked { .. }) {
            heard = None;
        }
        action = plan.step(&fact);
    }
}

fn kept(heard: &mut Option<TransferError>, error: TransferError) -> tl_kv::Code {
    let code = tl_kv::Code::from_grpc(error.code as i32);
    *heard = Some(error);
    code
}

/// Which blocks the receiver has. Those without a name are not asked for.
async fn ask(
    t: &dyn KvTransport,
    target: &str,
    hashes: &[u64],
) -> Result<Vec<bool>, TransferError> {
    let named: Vec<u64> = hashes.iter().copied().filter(|&h| h != 0).collect();
    if named.is_empty() {
        return Ok(vec![false; hashes.len()]);
    }
    let answers = t.has_blocks(target, &named, KV_FORMAT).await?;
    if answers.len() != named.len() {
        return Err(TransferError::new(
            Code::Internal,
            format!("{target} answered for {} of {} hashes", answers.len(), named.len()),
        ));
    }
    let mut answers = answers.into_iter();
    Ok(hashes.iter().map(|&h| h != 0 && answers.next() == Some(true)).collect())
}
