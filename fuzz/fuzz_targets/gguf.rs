#![no_main]

use tl_model::gguf::Gguf;

// A file is refused, or every tensor of its directory can be read.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(file) = Gguf::from_bytes(data.to_vec()) else {
        return;
    };
    for (name, info) in file.tensors() {
        let bytes = file.data(name, info).expect("the directory was checked against the file");
        assert_eq!(bytes.len() as u64, info.n_bytes);
    }
});
