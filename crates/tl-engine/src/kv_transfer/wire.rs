//! A push's messages, written from the pool into the connection's buffer.
//!
//! The generated encoder takes a `KvChunk` that owns its payload, so each block would
//! be copied into a payload first and into the message after. Here the fields around
//! the payload are the generated encoder's and the payload is written behind them.
//! Protobuf leaves the order of fields open; `crc32c` comes before `payload`.

use bytes::BufMut;
use prost::Message;
use tl_kv::CRC32C_RESIDUE;
use tl_proto::kv::v1::{KvAck, KvChunk};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use super::outgoing::{ChunkRef, Outgoing};

/// Key of `KvChunk.payload`: field 6, length-delimited.
const PAYLOAD_KEY: u8 = 6 << 3 | 2;

/// Sends [`ChunkRef`]s as `KvChunk`s and receives `KvAck`s.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkCodec;

#[derive(Debug, Default)]
pub(super) struct ChunkEncoder;

impl Codec for ChunkCodec {
    type Encode = ChunkRef;
    type Decode = KvAck;
    type Encoder = ChunkEncoder;
    type Decoder = <ProstCodec<KvChunk, KvAck> as Codec>::Decoder;

    fn encoder(&mut self) -> ChunkEncoder {
        ChunkEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<KvChunk, KvAck>::raw_decoder(BufferSettings::default())
    }
}

impl Encoder for ChunkEncoder {
    type Item = ChunkRef;
    type Error = Status;

    fn encode(&mut self, chunk: ChunkRef, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(chunk.push.largest_message());
        write_chunk(&chunk.push, chunk.index, buf)
            .map_err(|error| Status::new(error.code, error.message))
    }
}

/// Appends the message of chunk `index`.
pub(super) fn write_chunk(
    push: &Outgoing,
    index: usize,
    buf: &mut impl BufMut,
) -> Result<(), super::TransferError> {
    push.with_block(index, |mut head, block| {
        if block.is_some() {
            head.crc32c = CRC32C_RESIDUE;
        }
        head.encode_raw(buf);
        let Some(block) = block else { return Ok(()) };
        buf.put_u8(PAYLOAD_KEY);
        prost::encode_length_delimiter(block.envelope_bytes(), buf)
            .map_err(|e| super::TransferError::new(tonic::Code::Internal, e.to_string()))?;
        block.write(buf)
    })
}
