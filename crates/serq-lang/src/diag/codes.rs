//! The codes, stable for ever: a code that falls out of use is not given to another rule.
//!
//! E00 the file, E01 spelling and grammar, E02 the parts of a program, E03 names, E04 values and
//! kinds, E05 what a deployment does, E06 what comes from outside, W07 warnings.

use super::Severity;

macro_rules! codes {
    ($($code:ident $title:literal)*) => {
        /// The rule a finding is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// As it is shown, and as `explain` takes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => stringify!($code),)* }
            }

            /// One line on what the rule is about.
            pub fn title(self) -> &'static str {
                match self { $(Code::$code => $title,)* }
            }
        }
    };
}

codes! {
    E0001 "the file is not UTF-8 text"
    E0002 "the file is too large"

    E0101 "a character that means nothing"
    E0102 "a comment that never ends"
    E0103 "a string that never ends"
    E0104 "a malformed number"
    E0105 "something else was expected"
    E0106 "no declaration"
    E0107 "no statement"
    E0108 "an unknown option"
    E0109 "nested too deeply"
    E0110 "chained comparisons"
    E0111 "an old spelling"
    E0112 "an option given twice"
    E0113 "a name bound twice"
    E0114 "a binding that draws"
    E0115 "statements and declarations in one definition"

    E0201 "a client's statement in the server"
    E0202 "a request outside the workload's session"
    E0203 "`enter` in the server"
    E0204 "`admit` outside the server"
    E0205 "`where` outside `admit if`"
    E0206 "`at admission` inside `admit if`"
    E0207 "a transfer between pools that grows"
    E0208 "a client without a server"
    E0209 "a server without a client"
    E0210 "a server that is never requested"
    E0211 "both ways to write a session"
    E0212 "a part described twice"
    E0213 "no session"
    E0214 "no arrivals"
    E0215 "a statement that draws no attribute in `init` or `turn`"
    E0216 "no stage, or several, for a serving statement"
    E0217 "a booking outside the server"

    E0301 "an unknown pool"
    E0302 "an unknown stage"
    E0303 "an unknown name"
    E0304 "an unknown function"
    E0305 "an unknown distribution"
    E0306 "a name declared twice"
    E0307 "a constant that is also an attribute"
    E0308 "a reserved name"
    E0309 "an attribute that hides a variable of the moment"
    E0310 "a variable outside its moment"
    E0311 "an attribute where there is no session"
    E0312 "a stage used above its declaration"
    E0313 "an unknown definition"
    E0314 "a definition of another kind"
    E0315 "a definition that calls itself"
    E0316 "an argument that the definition changes"

    E0401 "a wrong number of arguments"
    E0402 "an argument of the wrong kind"
    E0403 "a family without an index"
    E0404 "no constant where one is needed"
    E0405 "a value out of range"
    E0406 "a number of servers that is no positive integer"
    E0407 "a family of an impossible size"
    E0408 "an impossible arrival law"
    E0409 "no horizon"
    E0410 "a warm-up that does not end before the horizon"
    E0411 "a member that does not exist"
    E0412 "a hold that can never fit"
    E0413 "a negative amount"
    E0414 "prefill or decode is missing"
    E0415 "prefill or decode off a step stage"
    E0416 "`growing` off a step stage"
    E0417 "a lease of a pool that the hold does not claim"
    E0418 "a pool is acted on outside of any hold of it"
    E0419 "families of different sizes"
    E0420 "a stage of the wrong kind"
    E0421 "a step stage without a cost"
    E0422 "a pool claimed twice by one hold"
    E0423 "a draw where the number of evaluations is unknown"
    E0424 "a budget that depends on itself"
    E0425 "too large once expanded"
    E0426 "arithmetic without a result"
    E0427 "an argument that draws and is used twice"
    E0428 "a gauge that cannot be followed"
    E0429 "a run over several stages without a rule"
    E0430 "a run over stages that cannot share it"
    E0431 "an `enter` of what nothing books"
    E0432 "a shared pool that cannot be"
    E0433 "a booking of no hold, or of two"
    E0434 "a content that cannot be"
    E0435 "a question about what is not being taken"
    E0436 "a message about a lease that no hold has"
    E0437 "a lease that no engine minds"
    E0438 "a lease abandoned for ever"
    E0439 "a run that cannot do what it says"
    E0440 "a fence with nothing ahead"
    E0441 "an objective that is none"

    E0501 "a hold sized by a reading that may be stale"
    E0502 "a guard that never varies"
    E0503 "a loop that can pass no time"
    E0504 "a closed workload that can pass no time"
    E0505 "a hold whose member has changed"
    E0506 "a hidden attribute that nothing sets"
    E0507 "an attribute hidden twice"
    E0508 "an attribute of the server's own, hidden"
    E0509 "a policy that reads a hidden attribute"

    E0601 "an override of nothing"
    E0602 "an override given twice"
    E0603 "a malformed row of a trace"
    E0604 "a trace without sessions"
    E0605 "a file that cannot be used"
    E0606 "files that use each other"
    E0607 "a column that a file does not have"
    E0608 "a malformed point of a table"
    E0609 "a point given twice"
    E0610 "a table without points"
    E0611 "an unknown unit"
    E0699 "the intermediate representation refuses the program"

    W0701 "statements that are never reached"
    W0702 "a constant that is never used"
    W0703 "an order of queues that can deadlock"
}

impl Code {
    /// Errors stop a program from linking; warnings do not.
    pub fn severity(self) -> Severity {
        if self.as_str().starts_with('W') { Severity::Warning } else { Severity::Error }
    }

    /// The code with this spelling, in either case.
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|c| c.as_str().eq_ignore_ascii_case(text))
    }
}
