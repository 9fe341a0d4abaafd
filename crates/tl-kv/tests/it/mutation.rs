//! A fixed number of damaged envelopes on every test run; `fuzz/` has the open-ended form.

use tl_kv::{BlockRecord, EnvHeader, read_envelope, write_envelope};

use crate::common::Noise;
use crate::oracle::{self, SHAPE};

fn corpus() -> Vec<Vec<u8>> {
    let record = |hash, n_tokens, value| BlockRecord { hash, n_tokens, payload: vec![value; 16] };
    let v1 = |n| EnvHeader::v1(&SHAPE, n);
    let mut corpus = vec![
        write_envelope(&v1(0), &[]),
        write_envelope(&v1(1), &[record(9, 2, 7)]),
        write_envelope(&v1(1), &[record(0, 1, 7)]),
        write_envelope(&v1(3), &[record(9, 2, 1), record(8, 2, 2), record(0, 1, 3)]),
        write_envelope(&v1(2), &[record(9, 2, 1), record(9, 2, 2)]),
        write_envelope(&v1(5), &vec![record(0, 2, 4); 5]),
        write_envelope(&EnvHeader { version: 2, dtype: 3, ..v1(1) }, &[record(0, 2, 7)]),
    ];
    let wide = EnvHeader { head_dim: 4, ..v1(1) };
    corpus
        .push(write_envelope(&wide, &[BlockRecord { hash: 1, n_tokens: 2, payload: vec![1; 32] }]));
    corpus
}

fn mutate(noise: &mut Noise, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=noise.below(4) {
        let at = noise.below(data.len());
        match noise.below(7) {
            0 if !data.is_empty() => data[at] ^= 1 << noise.below(8),
            1 if !data.is_empty() => data[at] = noise.next() as u8,
            2 => data.truncate(at),
            3 => data.extend((0..noise.below(20)).map(|_| 0xA5)),
            4 => data
                .splice(at..at, other[..noise.below(other.len())].iter().copied())
                .for_each(drop),
            5 if data.len() >= 28 => {
                let field = 8 + 4 * noise.below(5);
                let value = [0, 1, 2, 3, 0x8000_0000, u32::MAX][noise.below(6)];
                data[field..field + 4].copy_from_slice(&value.to_le_bytes());
            }
            _ if data.len() >= 40 => {
                let value = [0u32, 1, 2, 3, u32::MAX][noise.below(5)];
                data[36..40].copy_from_slice(&value.to_le_bytes());
            }
            _ => {}
        }
    }
    data
}

#[test]
fn no_bytes_break_the_readers() {
    let corpus = corpus();
    for seed in &corpus {
        oracle::envelope(seed);
        oracle::import(seed);
    }
    let mut noise = Noise(0x5EED);
    for round in 0..60_000 {
        let seed = &corpus[round % corpus.len()];
        let data = mutate(&mut noise, seed, &corpus[round * 7 % corpus.len()]);
        oracle::envelope(&data);
        oracle::import(&data);
    }
}

#[test]
fn no_stream_of_chunks_breaks_a_push() {
    let mut noise = Noise(0xC4A9);
    for chunks in 0..6 {
        oracle::push(&vec![0; chunks * 8]);
    }
    for _ in 0..30_000 {
        let mut data = vec![0; noise.below(6) * 8];
        for _ in 0..noise.below(4) {
            let at = noise.below(data.len());
            if let Some(byte) = data.get_mut(at) {
                *byte = noise.next() as u8;
            }
        }
        oracle::push(&data);
    }
}

/// Without a repaired checksum, an envelope that is not the original is refused.
#[test]
fn every_single_bit_matters() {
    for seed in corpus() {
        for at in 0..seed.len() * 8 {
            let mut data = seed.clone();
            data[at / 8] ^= 1 << (at % 8);
            assert!(read_envelope(&data, None).is_err(), "bit {at}");
        }
        for len in 0..seed.len() {
            assert!(read_envelope(&seed[..len], None).is_err(), "length {len}");
        }
    }
}
