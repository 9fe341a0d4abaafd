//! The files that come with the language, `use "std/..."`.
//!
//! They are plain programs made of definitions: what they do can be read, and copied to be changed.

/// Name and text of each, by name.
pub const FILES: &[(&str, &str)] = &[
    ("std/client", include_str!("../std/client.sq")),
    ("std/cost", include_str!("../std/cost.sq")),
    ("std/pd", include_str!("../std/pd.sq")),
    ("std/vllm", include_str!("../std/vllm.sq")),
];

/// The text of a file of the library.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
