//! The files that come with the language, `use "std/..."`.
//!
//! They are plain programs made of definitions: what they do can be read, and copied to be changed.

/// Name and text of each, by name.
pub const FILES: &[(&str, &str)] = &[];

/// The text of a file of the library.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
