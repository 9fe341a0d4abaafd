//! A fixed number of damaged inputs on every test run; `fuzz/` has the open-ended form.

use crate::oracle;

/// A small generator: the same inputs on every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Bytes that mean something to these readers.
const TOKENS: &[&[u8]] = &[
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"\\u0000",
    b"\\",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"data: ",
    b"data:[DONE]",
    b": ",
    b"\xef\xbb\xbf",
    b"\xff",
    b"=",
    b"[engine]\n",
    b"18446744073709551616",
    b"0.1",
    b"\xe2\x82",
    b"\xf0\x9f\x8c\x8d",
    b"#",
    b"ENGINE__",
];

fn mutate(noise: &mut Noise, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=noise.below(5) {
        let at = noise.below(data.len() + 1);
        let end = (at + noise.below(12)).min(data.len());
        match noise.below(6) {
            0 if at < data.len() => data[at] ^= 1 << noise.below(8),
            1 => drop(data.splice(at..end, TOKENS[noise.below(TOKENS.len())].iter().copied())),
            2 => data.truncate(at),
            3 => drop(data.drain(at..end)),
            4 => {
                let from = noise.below(other.len());
                let to = (from + noise.below(40)).min(other.len());
                drop(data.splice(at..at, other[from..to].iter().copied()));
            }
            _ => {
                let copy: Vec<u8> = data[at..end].to_vec();
                drop(data.splice(at..at, copy));
            }
        }
    }
    data
}

fn run(seed: u64, rounds: usize, corpus: &[&[u8]], mut oracle: impl FnMut(&[u8])) {
    let mut noise = Noise(seed);
    for data in corpus {
        oracle(data);
    }
    for round in 0..rounds {
        let (seed, other) = (corpus[round % corpus.len()], corpus[noise.below(corpus.len())]);
        oracle(&mutate(&mut noise, seed, other));
    }
}

const BODIES: &[&[u8]] = &[
    br#"{"model":"m","messages":[{"role":"user","content":"h\u00e9"},{"role":"assistant","content":[{"type":"text","text":"x"}]}],"temperature":0.5,"n":2,"stop":["a","b"],"logprobs":true,"top_logprobs":3,"stream":true,"stream_options":{"include_usage":true},"seed":7,"max_completion_tokens":9}"#,
    br#"{"model":"m","prompt":[1,2,3],"max_tokens":16,"top_p":0.9,"top_k":4,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":-2,"frequency_penalty":2,"logprobs":5,"echo":false,"user":"u","tl_prompt_ids":[1,2,3]}"#,
    br#"{"model":"m","prompt":"p","tools":[],"response_format":{"type":"text"},"logit_bias":null,"stop":"x"}"#,
    br#"{"model":"m","text":"t","add_special":true}"#,
    b"",
];

#[test]
fn no_body_breaks_the_readers() {
    run(0x5EED, 40_000, BODIES, oracle::body);
}

#[test]
fn no_stream_breaks_the_readers() {
    let chat: &[u8] = b"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97],\"top_logprobs\":[]}]},\"finish_reason\":null}]}\n\n: ping\n\ndata: [DONE]\n\n";
    let text: &[u8] = b"data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],\"token_logprobs\":[-1],\"top_logprobs\":[{}],\"text_offset\":[0]},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\r\n\r\n";
    let error: &[u8] = b"event: x\nid: 1\ndata: {\"error\":{\"message\":\"m\"}}\ndata: more\n\n";
    run(0xC4A9, 40_000, &[chat, text, error], oracle::stream);
}

#[test]
fn no_tokens_break_the_text() {
    let seeds: &[&[u8]] = &[
        "\u{1}one <|end|> two".as_bytes(),
        "\u{9}aabaabaac é€🌍 aab".as_bytes(),
        b"\x13\xe2\x82\xac\xff\xe2\x82",
    ];
    run(0x7E47, 40_000, seeds, oracle::text);
}

#[test]
fn no_configuration_breaks_the_reader() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("runtime.toml");
    let engine: &[u8] = b"[engine]\nrole = \"decode\"\nmodel_dir = \"tiny\"\nkv_blocks = 64\nprefix_cache = \"hash\"\nspeculative = { draft = \"none\", k = 4 }\n[cluster]\ntoken = \"0123456789abcdef\"\n\nENGINE__KV_BLOCKS=32\nENGINE__HTTP_LISTEN=:80\n";
    let gateway: &[u8] = b"[gateway]\nlisten = \"[::1]:0\"\nroute_policy = \"weighted\"\nroutes = [{ model = \"m\", aliases = [\"a\"], targets = [\"unified\"] }]\n[otel]\ntrace_sample_ratio = 0.5\n[ext]\nx = 1\n\nGATEWAY__DEBUG=true\n";
    run(0xF16, 2_000, &[engine, gateway, b""], |data| oracle::config(data, &path));
}
