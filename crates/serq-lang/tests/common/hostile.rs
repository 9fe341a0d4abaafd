//! Inputs made to be slow or deep.

/// Name and text of each.
pub(crate) fn shapes() -> Vec<(&'static str, String)> {
    let program = |body: &str| {
        format!(
            "pool p {{ }}\nstage s : fifo;\nworkload {{ arrive poisson(1); turn {{ set o = 1; }} session {{ turn; request; }} hidden o; }}\nserver {{ {body} }}\nrun {{ horizon 1; }}\n"
        )
    };
    let doubled: String = (1..60).map(|i| format!(", b{i} = b{} + b{}", i - 1, i - 1)).collect();
    // As deep as a program may be, or nearly: blocks around it and an expression in the middle.
    let deepest = 96;
    let around = |open: &str, close: &str| {
        program(&format!("{}run s (serial);{}", open.repeat(deepest), close.repeat(deepest)))
    };
    let inside = |open: &str, close: &str| {
        program(&format!("run s ({}serial{});", open.repeat(deepest), close.repeat(deepest)))
    };
    let defs: String = (0..14)
        .map(|i| {
            format!(
                "def v{}(x) = 1 + abs(v{i}(x + 1));\ndef b{}() {{ branch (serial) {{ b{i}(); }} }}\n",
                i + 1,
                i + 1
            )
        })
        .collect();
    let defs = format!(
        "def v0(x) = x;\ndef b0() {{ run s (v14({})); }}\n{defs}",
        "v0(".repeat(50) + "1" + &")".repeat(50)
    );
    vec![
        ("deepest holds", around("hold p (1) reserve (serial + 1) { ", " } cache (serial);")),
        ("deepest branches", around("branch (serial) { ", " } else { run s (1); }")),
        ("deepest loops", around("while (serial) { run s (1); ", " }")),
        (
            "deepest deadlines",
            around("until (now + 1) { shield { run s (1); } ", " } else { run s (2); }"),
        ),
        ("deepest parentheses", inside("(1 + ", ")")),
        ("deepest conditions", inside("serial ? 1 : ", "")),
        ("deepest calls", inside("max(1, ", ")")),
        ("deepest signs", inside("-", "")),
        (
            "deepest indices",
            program(&format!(
                "run s ({}serial{});",
                "used(p[".repeat(deepest / 2),
                "])".repeat(deepest / 2)
            )),
        ),
        ("deepest sum", program(&format!("run s (serial{});", " + serial".repeat(190)))),
        (
            "deepest in deepest",
            program(&format!(
                "{}run s (serial{});{}",
                "loop {".repeat(deepest),
                " + serial".repeat(190),
                "}".repeat(deepest)
            )),
        ),
        ("deepest definitions", defs + &program("b14();")),
        (
            "parentheses",
            program(&format!("run s ({}1{});", "(".repeat(100_000), ")".repeat(100_000))),
        ),
        ("open parentheses", "let a = ".to_owned() + &"(".repeat(500_000)),
        ("blocks", program(&"loop {".repeat(100_000))),
        ("signs", program(&format!("run s ({}1);", "-".repeat(200_000)))),
        ("powers", program(&format!("run s (1{});", "^1".repeat(200_000)))),
        ("sum", program(&format!("run s (1{});", " + 1".repeat(200_000)))),
        ("conditions", program(&format!("run s ({}1);", "1 ? 1 : ".repeat(100_000)))),
        ("calls", program(&format!("run s ({}1);", "abs(".repeat(100_000)))),
        ("indices", program(&format!("run s (used({}));", "p[used(".repeat(50_000)))),
        (
            "doubling bindings",
            program(&format!("admit if p (b59) fit where b0 = serial{doubled} {{ run s (1); }}")),
        ),
        ("copied server", {
            let client = "request;".repeat(3000);
            let server = "run s (1);".repeat(3000);
            format!(
                "stage s : fifo;\nworkload {{ arrive poisson(1); session {{ {client} }} }}\nserver {{ {server} }}\nrun {{ horizon 1; }}\n"
            )
        }),
        ("comments", "// c\n".repeat(200_000)),
        ("block comments", "/**/".repeat(200_000)),
        ("slashes", "/ ".repeat(200_000)),
        ("strings", "\"\n".repeat(200_000)),
        ("many lets", (0..20_000).map(|i| format!("let a{i} = {i};\n")).collect()),
        ("one line", "let a = 1; ".repeat(20_000)),
        ("one line, not ASCII", "let \u{e9} = 1; ".repeat(20_000)),
        ("families", "pool p[10000] { } pool q[10000] { }".to_owned()),
        (
            "nested branches",
            program(&format!(
                "{}run s (1);{}",
                "branch (serial) { ".repeat(90),
                " } else { run s (1); }".repeat(90)
            )),
        ),
        (
            "nested loops",
            program(&format!(
                "{}run s (1);{}",
                "loop { set x = free(p); ".repeat(90),
                " }".repeat(90)
            )),
        ),
        ("closing braces", "}".repeat(300_000)),
        ("long name", format!("let {} = 1;", "a".repeat(1_000_000))),
    ]
}

/// JSON of programs whose expressions and blocks are as deep as the form allows, and deeper.
pub(crate) fn deep_forms() -> Vec<String> {
    use serq_lang::ir::{CArg, CExpr, CStmt, Fun, MAX_BLOCK_DEPTH, MAX_EXPR_DEPTH, Unary};
    let text = "stage s : fifo; workload { arrive poisson(1); } session { run s (serial); } run { horizon 1; }";
    let program = serq_lang::compile("deep.sq", text.as_bytes(), &[]).program.expect("it links");
    let mut forms = vec!["[".repeat(1_000_000)];
    forms.push(format!("{{\"format\":\"serq-tl\",\"version\":5,\"blocks\":{}", forms[0]));
    for more in [0, 1] {
        let call = |e| CExpr::Call(Fun::Max, vec![CArg::Expr(CExpr::Num(1.0)), CArg::Expr(e)]);
        let sign = |e| CExpr::Unary(Unary::Neg, Box::new(e));
        for wrap in [&call as &dyn Fn(CExpr) -> CExpr, &sign] {
            let deep = (1..MAX_EXPR_DEPTH + more).fold(CExpr::Attr(1), |e, _| wrap(e));
            let mut program = program.clone();
            program.blocks[program.session].insert(0, CStmt::Set(1, deep));
            forms.push(serq_lang::ir::to_json(&program));
        }
        let mut program = program.clone();
        let mut block = program.session;
        for _ in 0..MAX_BLOCK_DEPTH + more {
            let next = program.blocks.len();
            program.blocks.push(program.blocks[block].clone());
            program.blocks[block] = vec![CStmt::Shield(next)];
            block = next;
        }
        program.version = serq_lang::ir::VERSION_6;
        program.spans = None;
        forms.push(serq_lang::ir::to_json(&program));
    }
    forms
}
