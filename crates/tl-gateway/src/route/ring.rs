//! Consistent hashing with bounded load.
//!
//! Requests with one key go to one worker, whose prefix cache then holds their common
//! beginning; a worker that comes or goes moves only its own share of the keys. Plain
//! consistent hashing would let one popular key drown its owner, so a worker above the bound
//! is passed over for the next one clockwise.

/// Virtual nodes per worker.
const POINTS: u32 = 160;
/// Bytes of a prompt that make the key.
pub const KEY_BYTES: usize = 64;

fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// The hash of keys and ring labels: FNV-1a, then a finalizer, since FNV alone spreads
/// labels that differ in their last byte badly.
pub fn hash64(bytes: &[u8]) -> u64 {
    let mut z = fnv1a64(bytes);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A ring over worker ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ring {
    ids: Vec<String>,
    /// Position, index into `ids`; ascending.
    points: Vec<(u64, usize)>,
}

impl Ring {
    /// `ids` in ascending order.
    pub fn new<'a>(ids: impl IntoIterator<Item = &'a str>) -> Ring {
        let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        let mut points: Vec<(u64, usize)> = Vec::with_capacity(ids.len() * POINTS as usize);
        for (node, id) in ids.iter().enumerate() {
            for i in 0..POINTS {
                points.push((hash64(format!("{id}#{i}").as_bytes()), node));
            }
        }
        points.sort_unstable();
        Ring { ids, points }
    }

    pub fn is_over<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> bool {
        self.ids.iter().map(String::as_str).eq(ids)
    }

    /// The workers (as places in the ids the ring was made of) clockwise from the key's owner,
    /// each once.
    pub fn from_owner(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let hash = hash64(key);
        let start = self.points.partition_point(|(position, _)| *position < hash);
        let (before, after) = self.points.split_at(start);
        let mut seen = vec![false; self.ids.len()];
        after.iter().chain(before).map(|(_, node)| *node).filter(move |node| {
            let first = !seen[*node];
            seen[*node] = true;
            first
        })
    }
}

/// The load below which a worker may take one more request, of `n` workers with `total`
/// requests together: `ceil(factor * (total + 1) / n)`.
pub fn bound(factor: f64, total: u64, n: usize) -> u64 {
    // Exact below 2^53, far above any number of requests.
    (factor.max(1.0) * (total + 1) as f64 / n.max(1) as f64).ceil() as u64
}
