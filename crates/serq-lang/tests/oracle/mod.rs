//! What must hold of any input; shared with the fuzz targets.

use serq_lang::compile;
use serq_lang::diag::{render_all, to_json};
use serq_lang::fmt::format;
use serq_lang::ir;

/// Any bytes as a program: no panic; findings can be shown in both forms; what links is valid,
/// survives JSON, and means the same in the common layout.
pub(crate) fn parse(data: &[u8]) {
    let overrides = match data.split_first() {
        Some((b'!', rest)) => {
            vec![
                String::from_utf8_lossy(rest.split(|&b| b == b'\n').next().unwrap_or(rest))
                    .into_owned(),
            ]
        }
        _ => Vec::new(),
    };
    let compiled = compile("fuzz.sq", data, &overrides);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    assert_eq!(shown.is_empty(), compiled.diagnostics.is_empty());
    let json = to_json(&compiled.diagnostics, &compiled.sources);
    assert_eq!(json.as_array().map(Vec::len), Some(compiled.diagnostics.len()));
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(once) = format("fuzz.sq", text) {
            let again = format("fuzz.sq", &once).expect("the layout of a program parses");
            assert_eq!(again, once, "a layout is its own layout");
            if let Some(program) = &compiled.program {
                let mut laid_out = compile("fuzz.sq", once.as_bytes(), &overrides)
                    .program
                    .expect("the layout of a program links");
                laid_out.spans.clone_from(&program.spans);
                assert_eq!(&laid_out, program, "layout changes no meaning");
            }
        }
    }
    if let Some(program) = compiled.program {
        ir::validate(&program).expect("what links is valid");
        let text = ir::to_json(&program);
        assert_eq!(ir::from_json(&text).expect("it reads what it writes"), program);
    }
}

/// Any bytes as the JSON form: no panic; what is accepted is valid and survives a round trip.
pub(crate) fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(program) = ir::from_json(text) {
        ir::validate(&program).expect("what is accepted is valid");
        let again = ir::from_json(&ir::to_json(&program)).expect("it reads what it writes");
        assert_eq!(ir::to_json(&again), ir::to_json(&program));
    }
}

/// Any bytes as a trace: no panic; rows become turns of numbers, or are refused.
pub(crate) fn trace(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut diags = serq_lang::diag::Diagnostics::default();
    let sessions = serq_lang::trace::read_sessions(&text, 0, &mut diags);
    assert!(sessions.iter().all(|turns| !turns.is_empty()));
    let numbers = sessions.iter().flatten().flat_map(|t| [t.0, t.1, t.2, t.3]);
    assert!(numbers.into_iter().all(|v| v.is_finite() && v >= 0.0));
    assert!(!sessions.is_empty() || diags.has_errors());
}
