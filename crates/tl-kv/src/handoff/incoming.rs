//! One push on its way in, from its first chunk to the handle it becomes.
//!
//! What a driver does with a stream of chunks, without the stream: it judges each chunk, asks the
//! handle table, takes the block, and lands the whole. The steps are apart because the driver
//! holds the table's lock for [`Incoming::admit`], [`Incoming::land`] and [`Incoming::abort`] and
//! for nothing else: a copy and a checksum run beside it.

use super::handle::{HandleError, Refused, Ticket};
use super::push::{ChunkAction, ChunkHead, PushAck, PushAssembly, PushError, PushLimits, receive};
use super::table::HandleTable;
use crate::held::Held;
use crate::pool::{SharedKv, lock};

/// The blocks of a claimed handle and what is known of them.
#[derive(Debug)]
pub struct Claimed {
    /// The blocks, in prompt order.
    pub held: Held,
    /// Names the sender gave the leading full blocks, in prompt order; 0 for a block
    /// it did not name.
    pub block_hashes: Vec<u64>,
    /// Positions of the prompt that the blocks hold.
    pub n_tokens: usize,
    /// Incarnation of the engine that pushed them, 0 when it did not say.
    pub incarnation: u64,
}

/// A push of which every chunk has arrived and none has landed.
#[derive(Debug)]
#[must_use = "land it, or its blocks go back"]
pub struct Landing {
    ack: PushAck,
    claimed: Claimed,
}

/// A push of which some chunks may have arrived. Dropping it gives its blocks back; its place in
/// the table is given back by [`Incoming::abort`].
#[derive(Debug)]
pub struct Incoming {
    pub(crate) incarnation: u64,
    pub(crate) assembly: PushAssembly,
    pub(crate) held: Held,
    pub(crate) hashes: Vec<u64>,
    /// The right to land, from the first chunk on.
    pub(crate) ticket: Option<Ticket>,
}

impl Incoming {
    /// A push by the process `incarnation` (0: unknown) of which nothing has arrived.
    pub fn new(pool: &SharedKv, limits: PushLimits, incarnation: u64) -> Self {
        Self {
            incarnation,
            assembly: PushAssembly::new(limits),
            held: Held::empty(pool),
            hashes: Vec::new(),
            ticket: None,
        }
    }

    /// Key of the handle, once a chunk was accepted.
    pub fn handle(&self) -> Option<&str> {
        self.assembly.handle().map(|(handle, _)| handle)
    }

    /// The blocks that have arrived.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// False once its handle has ended while the push was under way: released, expired, fenced.
    pub fn lives(&self, table: &HandleTable<Claimed>) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| table.rank(ticket) < table.live())
    }

    /// Judges the next chunk by its head.
    pub fn judge(&mut self, head: &ChunkHead<'_>) -> Result<ChunkAction, PushError> {
        self.assembly.chunk(head)
    }

    /// Asks the table whether the push may go on: the first chunk begins it, a later one renews
    /// its time. True when it began.
    pub fn admit(
        &mut self,
        head: &ChunkHead<'_>,
        table: &mut HandleTable<Claimed>,
        now: u64,
    ) -> Result<bool, HandleError> {
        if let Some(ticket) = &self.ticket {
            return table.touch(ticket, now).map(|()| false);
        }
        let blocks = u64::from(head.n_blocks_total);
        self.ticket = Some(table.begin(head.handle_id, self.incarnation, blocks, now)?);
        Ok(true)
    }

    /// Takes the block of a chunk that was judged and admitted.
    pub fn take(
        &mut self,
        action: ChunkAction,
        head: &ChunkHead<'_>,
        payload: &[u8],
    ) -> Result<(), PushError> {
        receive(action, head, payload, &mut self.held)?;
        self.hashes.push(head.block_hash);
        Ok(())
    }

    /// The sender has closed its side: everything that arrived, or what is missing.
    pub fn whole(&mut self) -> Result<Landing, PushError> {
        let index = self.assembly.accepted();
        let ack = self.assembly.clone().finish()?;
        let empty = Held::empty(self.held.pool());
        let held = std::mem::replace(&mut self.held, empty);
        let fills = {
            let pool = lock(held.pool());
            held.ids().iter().map(|&id| pool.fill(id).map(|n| n as usize)).sum::<Result<_, _>>()
        };
        let n_tokens = fills.map_err(|error| PushError::Pool { index, error })?;
        let block_hashes = std::mem::take(&mut self.hashes);
        let claimed = Claimed { held, block_hashes, n_tokens, incarnation: self.incarnation };
        Ok(Landing { ack, claimed })
    }

    /// Hands the blocks to the handle. Only after this may the push be acknowledged.
    pub fn land(
        &mut self,
        landing: Landing,
        table: &mut HandleTable<Claimed>,
        now: u64,
    ) -> Result<PushAck, Refused<Claimed>> {
        let Landing { ack, claimed } = landing;
        match self.ticket.take() {
            Some(ticket) => table.complete(ticket, claimed, now).map(|()| ack),
            None => Err(Refused { value: claimed, error: HandleError::AlreadyLive }),
        }
    }

    /// Gives the push's place in the table back, if it still has one. The sender may repeat it.
    pub fn abort(&mut self, table: &mut HandleTable<Claimed>, now: u64) {
        if let Some(ticket) = self.ticket.take() {
            table.abort(ticket, now);
        }
    }
}
