//! `explain`.

use serq_lang::diag::{Code, closest};
use serq_lang::explain;

use crate::cli::ExplainArgs;
use crate::out::{self, Done, Failure};

pub(crate) fn run(args: &ExplainArgs) -> Done {
    let Some(text) = &args.code else {
        let mut list = String::new();
        for code in Code::ALL {
            list.push_str(&format!("{}  {}\n", code.as_str(), code.title()));
        }
        return out::result(&list);
    };
    match Code::parse(text).and_then(explain::entry) {
        Some(entry) => out::result(&explain::render(entry)),
        None => {
            let upper = text.to_ascii_uppercase();
            let near = closest(&upper, Code::ALL.iter().map(|c| c.as_str()));
            let help = near.map_or_else(
                || "`serq explain` lists them all".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            Err(Failure::usage(format!("error: there is no code `{text}`\n  = help: {help}")))
        }
    }
}
