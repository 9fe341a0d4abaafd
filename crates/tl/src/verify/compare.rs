//! What is compared: everything a client sees that must not depend on where it was computed.

use serde_json::Value;

/// One answer, streamed or not, in one shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) choices: Vec<Choice>,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// The gateway says that prefill and decode ran on two engines. Not compared.
    pub(crate) handed_over: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) finish_reason: Option<String>,
    /// One entry a token, as the API gives them.
    pub(crate) logprobs: Vec<Value>,
}

/// Where two answers part.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    pub(crate) place: String,
    pub(crate) expected: String,
    pub(crate) got: String,
}

/// The first difference in reading order, if there is one.
pub(crate) fn first_difference(expected: &Answer, got: &Answer) -> Option<Difference> {
    let Answer { choices, prompt_tokens, completion_tokens, handed_over: _ } = expected;
    let differ = |place: String, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| Difference {
        place,
        expected: format!("{a:?}"),
        got: format!("{b:?}"),
    };
    if choices.len() != got.choices.len() {
        return Some(differ("number of choices".into(), &choices.len(), &got.choices.len()));
    }
    for (i, (a, b)) in choices.iter().zip(&got.choices).enumerate() {
        for (j, (x, y)) in a.logprobs.iter().zip(&b.logprobs).enumerate() {
            if x != y {
                return Some(differ(
                    format!("choice {i}, token {j}"),
                    &x.to_string(),
                    &y.to_string(),
                ));
            }
        }
        if a.text != b.text {
            let same = a.text.chars().zip(b.text.chars()).take_while(|(x, y)| x == y).count();
            let near = |text: &str| {
                text.chars().skip(same.saturating_sub(20)).take(60).collect::<String>()
            };
            return Some(differ(
                format!("choice {i}, character {same} of the text"),
                &near(&a.text),
                &near(&b.text),
            ));
        }
        if a.logprobs.len() != b.logprobs.len() {
            return Some(differ(
                format!("choice {i}, number of logprobs"),
                &a.logprobs.len(),
                &b.logprobs.len(),
            ));
        }
        if a.finish_reason != b.finish_reason {
            return Some(differ(
                format!("choice {i}, finish reason"),
                &a.finish_reason,
                &b.finish_reason,
            ));
        }
    }
    if *prompt_tokens != got.prompt_tokens {
        return Some(differ("usage.prompt_tokens".into(), prompt_tokens, &got.prompt_tokens));
    }
    if *completion_tokens != got.completion_tokens {
        return Some(differ(
            "usage.completion_tokens".into(),
            completion_tokens,
            &got.completion_tokens,
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, reason: &str, logprob: f64, completion_tokens: u64) -> Answer {
        Answer {
            choices: vec![Choice {
                text: text.into(),
                finish_reason: Some(reason.into()),
                logprobs: vec![serde_json::json!({"token": "a", "logprob": logprob})],
            }],
            prompt_tokens: 3,
            completion_tokens,
            handed_over: false,
        }
    }

    fn check(other: &Answer, place: Option<&str>) {
        let got = first_difference(&answer("abc", "stop", -0.5, 3), other).map(|d| d.place);
        assert_eq!(got.as_deref(), place);
    }

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        check(&answer("abc", "stop", -0.5, 3), None);
        check(&Answer { handed_over: true, ..answer("abc", "stop", -0.5, 3) }, None);
        check(&answer("abd", "stop", -0.5, 3), Some("choice 0, character 2 of the text"));
        check(&answer("abc", "length", -0.5, 3), Some("choice 0, finish reason"));
        check(&answer("abc", "stop", -0.500_000_000_000_000_1, 3), Some("choice 0, token 0"));
        check(&answer("abc", "stop", -0.5, 4), Some("usage.completion_tokens"));
        check(&Answer { choices: vec![], ..answer("", "", 0.0, 3) }, Some("number of choices"));
    }
}
