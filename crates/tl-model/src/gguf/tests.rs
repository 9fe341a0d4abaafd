use super::*;
use crate::tests::write::{GgufFile, Words, gguf, small};

fn all_types() -> GgufFile {
    let mut f = GgufFile::default();
    f.raw("u8", 0, &[200]).raw("i8", 1, &[0xff]).raw("u16", 2, &[1, 2]).raw(
        "i16",
        3,
        &[0xfe, 0xff],
    );
    f.u32("u32", 7).raw("i32", 5, &(-5i32).to_le_bytes()).f32("f32", 1.5);
    f.raw("bool", 7, &[1]).str("text", "naïve").raw("u64", 10, &u64::MAX.to_le_bytes());
    f.raw("i64", 11, &(-9i64).to_le_bytes()).raw("f64", 12, &2.5f64.to_le_bytes());
    f.strings("strings", &["a", "", "ü"]).i32s("i32s", &[1, -1]);
    // An array of two arrays of u8.
    let inner = [&0u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[5, 6]].concat();
    let nested = [&9u32.to_le_bytes()[..], &2u64.to_le_bytes(), &inner, &inner].concat();
    f.raw("nested", 9, &nested);
    f.tensor("t", &[2, 32], 8, &[3; 68]).tensor("u", &[3], 0, &[9; 12]);
    f
}

#[test]
fn every_value_type_is_read() {
    let f = Gguf::from_bytes(all_types().bytes()).unwrap();
    let check = |key: &str, expected: Value| assert_eq!(f.get(key), Some(&expected), "{key}");
    check("u8", Value::U8(200));
    check("i8", Value::I8(-1));
    check("u16", Value::U16(0x201));
    check("i16", Value::I16(-2));
    check("u32", Value::U32(7));
    check("i32", Value::I32(-5));
    check("f32", Value::F32(1.5));
    check("bool", Value::Bool(true));
    check("text", Value::String("naïve".into()));
    check("u64", Value::U64(u64::MAX));
    check("i64", Value::I64(-9));
    check("f64", Value::F64(2.5));
    check("strings", Value::Array(Array::String(["a", "", "ü"].map(str::to_owned).to_vec())));
    check("i32s", Value::Array(Array::I32(vec![1, -1])));
    check("nested", Value::Array(Array::Array(vec![Array::U8(vec![5, 6]); 2])));
    let t = &f.tensors()["t"];
    assert_eq!((t.dtype, t.shape.as_slice(), t.n_bytes), (Dtype::Q8_0, &[2, 32][..], 68));
    assert_eq!(f.data("t", t).unwrap(), [3; 68]);
    assert_eq!(f.data("u", &f.tensors()["u"]).unwrap(), [9; 12]);
    assert_eq!(f.keys().count(), 15);
    assert_eq!(f.u64("u8").unwrap(), Some(200));
    assert_eq!(f.u64("absent").unwrap(), None);
    assert!(f.u64("i8").is_err() && f.str("u8").is_err() && f.strings("i32s").is_err());
}

#[test]
fn refusals_say_what_and_where() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let error = Gguf::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, expected {expected}");
    };
    let header = |version: u32, tensors: u64, keys: u64| {
        [&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
    };
    check(vec![], "not a GGUF file");
    check(b"GGU".to_vec(), "not a GGUF file");
    check(b"ELF\0aaaaaaaaaaaaaaaaaaaaaaaa".to_vec(), "not a GGUF file");
    check(header(1, 0, 0), "version at byte 4: version 1 is not supported");
    check(header(3u32.swap_bytes(), 0, 0), "big-endian");
    check(header(3, u64::MAX, 0), "tensor count at byte 8: a count of 18446744073709551615");
    check(header(3, 0, 1 << 40), "metadata count at byte 16: a count of 1099511627776");
    check(b"GGUF\x03\0\0\0\0".to_vec(), "needs 8 bytes but the file has only 1 left");

    let file = |edit: &dyn Fn(&mut GgufFile) -> &mut GgufFile| {
        let mut f = GgufFile::default();
        // Room, so that counts are not refused before what is meant.
        f.str("padding", &"x".repeat(200));
        edit(&mut f);
        f.bytes()
    };
    let array = |type_id: u32, n: u64| [&type_id.to_le_bytes()[..], &n.to_le_bytes()].concat();
    check(file(&|f| f.raw("k", 13, &[])), "value of metadata key `k`");
    check(file(&|f| f.raw("k", 13, &[])), "unknown value type 13");
    check(file(&|f| f.raw("k", 7, &[2])), "a bool must be 0 or 1, found 2");
    check(file(&|f| f.raw("k", 8, &u64::MAX.to_le_bytes())), "needs 18446744073709551615");
    check(file(&|f| f.raw("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])), "not UTF-8");
    check(file(&|f| f.raw("k", 9, &array(0, 1 << 60))), "a count of");
    check(file(&|f| f.raw("k", 9, &array(10, 1 << 61))), "a count of");
    check(
        file(&|f| {
            f.raw(
                "k",
                9,
                &[array(9, 1), array(9, 1), array(9, 1), array(9, 1), array(9, 1)].concat(),
            )
        }),
        "nested deeper",
    );
    check(file(&|f| f.u32("k", 1).u32("k", 1)), "twice");
    check(file(&|f| f.u32("general.alignment", 48)), "alignment 48");
    check(file(&|f| f.u32("general.alignment", 0)), "alignment 0");
    check(file(&|f| f.str("general.alignment", "x")), "found text");
    check(file(&|f| f.tensor("t", &[32], 12, &[0; 18])), "Q4_K (12)");
    check(file(&|f| f.tensor("t", &[32], 77, &[0; 18])), "type 77");
    check(file(&|f| f.tensor("t", &[31], 2, &[0; 18])), "rows of 31");
    check(file(&|f| f.tensor("t", &[], 0, &[])), "0 dimensions");
    check(file(&|f| f.tensor("t", &[1; 5], 0, &[0; 4])), "5 dimensions");
    check(file(&|f| f.tensor("t", &[0], 0, &[])), "a dimension is 0");
    check(file(&|f| f.tensor("t", &[1 << 40, 1 << 40], 0, &[])), "overflows");
    check(file(&|f| f.tensor("t", &[64], 0, &[0; 32])), "data of tensor `t`");
    check(file(&|f| f.tensor("t", &[1], 0, &[0; 4]).tensor("t", &[1], 0, &[0; 4])), "twice");
    check(
        file(&|f| {
            f.u32("general.alignment", 64).tensor("s", &[1], 0, &[0; 4]).tensor(
                "t",
                &[1],
                0,
                &[0; 4],
            )
        }),
        "not a multiple of the alignment",
    );
}

#[test]
fn a_cut_file_is_an_error_at_every_length() {
    let whole = all_types().bytes();
    // The last tensor's padding may go.
    for n in 0..whole.len() - 20 {
        assert!(Gguf::from_bytes(whole[..n].to_vec()).is_err(), "{n} of {} bytes", whole.len());
    }
}

/// What a fuzzer calls, too: no input may panic or ask for memory that the file cannot back.
fn exercise(bytes: Vec<u8>) -> bool {
    let Ok(file) = Gguf::from_bytes(bytes) else { return false };
    for (name, info) in file.tensors() {
        let data = file.data(name, info).unwrap();
        let mut out = vec![0; info.shape.iter().product()];
        crate::convert::to_f16(info.dtype, &data, &mut out);
    }
    true
}

#[test]
fn mutated_files_are_read_or_refused() {
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let words = Words::new();
    let (mut read, mut refused) = (0, 0);
    for seed in [all_types().bytes(), gguf(&small(), 1, &words).bytes()] {
        for _ in 0..3000 {
            let mut bytes = seed.clone();
            for _ in 0..=random(3) {
                let header = bytes.len().min(9000);
                let at = random(header);
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] ^= 1 << random(8),
                    2 => {
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].fill([0, 0xff, 0x7f][random(3)]);
                    }
                    _ => drop(bytes.drain(at..(at + 1 + random(16)).min(header))),
                }
            }
            if exercise(bytes) { read += 1 } else { refused += 1 }
        }
    }
    assert!(read > 100 && refused > 1000, "{read} read, {refused} refused");
}
