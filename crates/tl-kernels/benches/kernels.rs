//! What the kernels reach of what the machine has:
//! `cargo bench -p tl-kernels --bench kernels [-- [ISA] [products] [attention] [rows]]`.
//!
//! Every figure is the fastest of many calls, since other work on the machine can only
//! slow one down; with one thread it counts the time on the CPU (Linux) instead of the
//! time on the wall. First come the two limits, measured in the same run: the multiply-adds
//! that a loop over registers alone reaches, and the bytes that a plain sum reads per second
//! from buffers of several sizes, the largest ones from memory.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tl_kernels::{AttnScratch, AttnShape, Isa, Kernels, Quant, Threads, Weights, f32_to_f16};

/// Rows, columns summed over, outputs; each with every way of keeping weights.
const SHAPES: [(usize, usize, usize); 12] = [
    (1, 576, 1536),
    (2, 576, 1536),
    (3, 576, 1536),
    (4, 576, 1536),
    (8, 576, 1536),
    (16, 576, 1536),
    (24, 576, 1536),
    (72, 576, 1536),
    (512, 576, 1536),
    (72, 1536, 576),
    (1, 4096, 4096),
    (1, 576, 49152),
];

/// How weights are kept.
#[derive(Clone, Copy)]
enum Kept {
    F32,
    F16,
    Blocks(Quant),
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kept::F32 => f.pad("f32"),
            Kept::F16 => f.pad("f16"),
            Kept::Blocks(quant) => f.pad(&quant.to_string()),
        }
    }
}

const KEPT: [Kept; 4] =
    [Kept::F32, Kept::F16, Kept::Blocks(Quant::Q4_1), Kept::Blocks(Quant::Q8_0)];

fn main() {
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let isa = args.iter().find_map(|arg| Isa::from_name(arg)).unwrap_or(Isa::detect().isa);
    let named: Vec<_> = args.iter().filter(|arg| Isa::from_name(arg).is_none()).collect();
    let wanted = |section: &str| named.is_empty() || named.iter().any(|&name| name == section);
    let kernels = Kernels::new(isa).unwrap_or_else(|| panic!("this CPU has no {isa}"));
    println!("instruction set {isa}, chosen: {}", Isa::detect());
    let teams = [1, 2].map(Threads::new);
    let peaks = teams.each_ref().map(|team| peak_gflops(isa, team));
    for (team, peak) in teams.iter().zip(peaks) {
        print!("{} threads: registers alone {peak:.0} GFLOP/s; reads", team.count());
        for kib in [256, 4 << 10, 256 << 10] {
            print!(", of {kib} KiB {:.1} GB/s", read_gbytes(kib << 10, team));
        }
        println!();
    }

    if wanted("products") {
        println!("\n   m     k     n  kept  threads  GFLOP/s  of peak    GB/s");
        for (m, k, n) in SHAPES {
            for kept in KEPT {
                let w = match kept {
                    Kept::F32 => Weights::from_f32(n, k, numbers(n * k)),
                    Kept::F16 => Weights::from_f16(n, k, halves(n * k)),
                    Kept::Blocks(quant) => {
                        let fill = |i, row: &mut [u8]| blocks(quant, i, row);
                        Weights::build_quant(n, k, quant, fill)
                    }
                }
                .expect("the data fits the shape");
                for (team, peak) in teams.iter().zip(peaks) {
                    product(kernels, m, &w, kept, team, peak);
                }
            }
        }
    }
    if wanted("attention") {
        println!("\nattention, 9 query heads, 3 KV heads, dimension 64, blocks of 16, 30 layers");
        println!(" rows  context  threads       ms    GB/s  GFLOP/s");
        let sizes = [(1, 128), (1, 1024), (1, 4096), (64, 1024), (512, 512), (256, 4096)];
        for (rows, context) in sizes {
            for threads in [1, 2] {
                attention(kernels, rows, context, threads);
            }
        }
    }
    if wanted("rows") {
        println!();
        rows(kernels);
        println!("a job of 8 empty parts on 2 threads: {:.2} us", barrier() * 1e6);
    }
}

/// Seconds of the fastest call; `alone` if the calling thread does all the work.
fn fastest(alone: bool, mut f: impl FnMut()) -> f64 {
    let (start, now) = (Instant::now(), if alone { cpu_seconds } else { wall_seconds });
    let mut best = f64::INFINITY;
    let mut calls = 0;
    while start.elapsed() < Duration::from_millis(400) || calls < 5 {
        let call = now();
        f();
        best = best.min(now() - call);
        calls += 1;
    }
    best
}

fn wall_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Seconds that this thread has run.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn cpu_seconds() -> f64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const THREAD_CPUTIME: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library's function, with the types of 64-bit Linux.
    let failed = unsafe { clock_gettime(THREAD_CPUTIME, &mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn cpu_seconds() -> f64 {
    wall_seconds()
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0).collect()
}

fn halves(n: usize) -> Vec<u16> {
    let mut halves = vec![0; n];
    Kernels::detect().f32_to_f16(&numbers(n), &mut halves);
    halves
}

/// A row of blocks with scales of 2^-7.
fn blocks(quant: Quant, i: usize, row: &mut [u8]) {
    for (j, block) in row.chunks_exact_mut(quant.block_bytes()).enumerate() {
        block.iter_mut().enumerate().for_each(|(l, byte)| *byte = (i * 31 + j * 7 + l * 3) as u8);
        let scales = if quant == Quant::Q4_1 { 2 } else { 1 };
        for scale in block.chunks_exact_mut(2).take(scales) {
            scale.copy_from_slice(&f32_to_f16(1.0 / 128.0).to_le_bytes());
        }
    }
}

fn product(kernels: Kernels, m: usize, w: &Weights, kept: Kept, team: &Threads, peak: f64) {
    let (n, k, threads) = (w.n(), w.k(), team.count());
    let act = numbers(m * k);
    let mut out = vec![0.0; m * n];
    let seconds = fastest(threads == 1, || {
        kernels.matmul(team, black_box(&mut out), black_box(&act), w, m);
    });
    let gflops = 2.0 * (m * k * n) as f64 / seconds / 1e9;
    println!(
        "{m:4} {k:5} {n:5}  {kept:4}  {threads:7}  {gflops:7.1}  {:6.0}%  {:6.1}",
        gflops / peak * 100.0,
        w.bytes() as f64 / seconds / 1e9,
    );
}

/// A plain sum over `bytes`, split over the team.
fn read_gbytes(bytes: usize, team: &Threads) -> f64 {
    let data = vec![1u64; bytes / 8];
    let parts: Vec<&[u64]> = data.chunks(data.len().div_ceil(team.count())).collect();
    let seconds = fastest(team.count() == 1, || {
        team.run(parts.len(), |i| {
            let mut sums = [0u64; 16];
            for words in black_box(parts[i]).chunks_exact(16) {
                for (sum, &word) in sums.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(word);
                }
            }
            black_box(sums);
        });
    });
    bytes as f64 / seconds / 1e9
}

fn attention(kernels: Kernels, rows: usize, context: usize, threads: usize) {
    const LAYERS: usize = 30;
    let shape = AttnShape { n_heads: 9, n_kv_heads: 3, head_dim: 64, block_tokens: 16 };
    let block = shape.n_kv_heads * shape.block_tokens * shape.head_dim;
    let n_blocks = context.div_ceil(shape.block_tokens);
    // As in a pool: a block holds the keys and values of all layers.
    let slab = halves(n_blocks * LAYERS * 2 * block);
    let at = |b: usize, layer: usize, kv: usize| {
        &slab[((b * LAYERS + layer) * 2 + kv) * block..][..block]
    };
    let row = shape.n_heads * shape.head_dim;
    let q = numbers(rows * row);
    let mut out = vec![0.0; rows * row];
    let team = Threads::new(threads);
    let mut scratch = AttnScratch::new();
    let seconds = fastest(threads == 1, || {
        for layer in 0..LAYERS {
            let k: Vec<&[u16]> = (0..n_blocks).map(|b| at(b, layer, 0)).collect();
            let v: Vec<&[u16]> = (0..n_blocks).map(|b| at(b, layer, 1)).collect();
            kernels.attention(
                &team,
                black_box(&mut out),
                &q,
                &k,
                &v,
                context - rows,
                rows,
                shape,
                0.125,
                &mut scratch,
            );
        }
    });
    let bytes = (LAYERS * 2 * context * shape.n_kv_heads * shape.head_dim * 2) as f64;
    let seen: usize = (context - rows + 1..=context).sum();
    let flops = (LAYERS * seen * shape.n_heads * shape.head_dim * 4) as f64;
    println!(
        "{rows:5}  {context:7}  {threads:7}  {:7.2}  {:6.1}  {:7.1}",
        seconds * 1e3,
        bytes / seconds / 1e9,
        flops / seconds / 1e9,
    );
}

fn rows(kernels: Kernels) {
    let (x, w) = (numbers(1536), numbers(1536));
    let mut out = vec![0.0; 1536];
    let mut half = vec![0; 1536];
    let mut report = |what: &str, f: &mut dyn FnMut(&mut [f32])| {
        let seconds = fastest(true, || {
            for _ in 0..100 {
                f(black_box(&mut out));
            }
        }) / 100.0;
        println!("{what:12} of 1536: {:6.0} ns", seconds * 1e9);
    };
    report("rmsnorm", &mut |out| kernels.rmsnorm(out, &x, &w, 1e-5));
    report("silu_mul", &mut |out| kernels.silu_mul(&x, &w, out));
    report("softmax", &mut |out| {
        out.copy_from_slice(&x);
        kernels.softmax(out);
    });
    report("add_assign", &mut |out| kernels.add_assign(out, &x));
    report("f32_to_f16", &mut |_| kernels.f32_to_f16(&x, black_box(&mut half)));
    report("rope_half", &mut |out| kernels.rope_half(out, &x[..32], &w[..32]));
}

fn barrier() -> f64 {
    let team = Threads::new(2);
    fastest(false, || {
        team.run(8, |i| {
            black_box(i);
        });
    })
}

/// Multiply-adds of registers alone, independent enough to fill both units of each core.
fn peak_gflops(isa: Isa, team: &Threads) -> f64 {
    const ROUNDS: usize = 100_000;
    let lanes = match isa {
        Isa::Avx512 => 16,
        Isa::Avx2 => 8,
        Isa::Portable => 1,
    };
    let seconds = fastest(team.count() == 1, || {
        team.run(team.count(), |_| match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the kernels for `isa` exist, so the CPU has its features.
            Isa::Avx512 => unsafe { x86::peak_avx512(ROUNDS) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { x86::peak_avx2(ROUNDS) },
            _ => {
                let mut sums = [1.0f32; 12];
                for _ in 0..ROUNDS {
                    for sum in &mut sums {
                        *sum = sum.mul_add(black_box(0.5), 0.25);
                    }
                }
                black_box(sums);
            }
        });
    });
    (2 * 12 * lanes * ROUNDS * team.count()) as f64 / seconds / 1e9
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn peak_avx2(rounds: usize) {
        let (a, b) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.25)));
        let mut sums = [_mm256_set1_ps(1.0); 12];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(crate) fn peak_avx512(rounds: usize) {
        let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let mut sums = [_mm512_set1_ps(1.0); 12];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }
}
