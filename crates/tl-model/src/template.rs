//! Chat messages to prompt text, by the model's own Jinja template.
//!
//! The template is parsed at load. What it refuses while rendering (a role it does not know, roles
//! that do not alternate) is the request's error. There is no clock in it: `strftime_now` is
//! absent, so a prompt is a function of the messages alone and both sides of a hand-off agree on it.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};

use crate::error::ModelError;

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
}

impl ChatMessage {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A compiled chat template.
pub struct ChatTemplate {
    env: Environment<'static>,
}

const NAME: &str = "chat";

/// For models that bring none: `<|role|>`, the content, and an opened answer, each on its line.
const DEFAULT: &str = "\
{%- for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}\
{%- endfor %}{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{%- endif %}";

impl ChatTemplate {
    /// Compiles `source`; the texts of the begin and end tokens are the template's `bos_token` and
    /// `eos_token`.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, ModelError> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| ModelError::Template(one_line(&e)))?);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        env.add_global("bos_token", bos.unwrap_or_default().to_owned());
        env.add_global("eos_token", eos.unwrap_or_default().to_owned());
        env.add_template_owned(NAME, source.to_owned())
            .map_err(|e| ModelError::Template(one_line(&e)))?;
        Ok(Self { env })
    }

    /// The template for models without one.
    pub fn default_template() -> Self {
        Self::new(DEFAULT, None, None).expect("the default template is valid, a test renders it")
    }

    /// The prompt for `messages`; `add_generation_prompt` opens the assistant's turn.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<String, ModelError> {
        let render = || {
            let message = |m: &ChatMessage| {
                Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())])
            };
            let messages: Vec<Value> = messages.iter().map(message).collect();
            self.env.get_template(NAME)?.render(context! { messages, add_generation_prompt })
        };
        render().map_err(|e| ModelError::Render(one_line(&e)))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

/// The error's own words and the line, without the template's text.
fn one_line(e: &minijinja::Error) -> String {
    let what = e.detail().map_or_else(|| e.kind().to_string(), str::to_owned);
    match e.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, messages: &[(&str, &str)], prompt: bool, expected: Result<&str, &str>) {
        let messages: Vec<_> = messages.iter().map(|&(r, c)| ChatMessage::new(r, c)).collect();
        let template = ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap();
        match (template.render(&messages, prompt), expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text, expected),
            (Err(ModelError::Render(e)), Err(part)) => assert!(e.contains(part), "{e}"),
            (got, _) => panic!("{got:?}, expected {expected:?}"),
        }
    }

    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != \
        'system' %}{{ '<|im_start|>system\nYou help<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + \
        message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn templates_render() {
        check(
            CHATML,
            &[("user", "hi")],
            true,
            Ok("<|im_start|>system\nYou help<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
                <|im_start|>assistant\n"),
        );
        check(DEFAULT, &[("system", "a"), ("user", "b\n")], true, {
            Ok("<|system|>\na\n<|user|>\nb\n\n<|assistant|>\n")
        });
        check(DEFAULT, &[("user", "b")], false, Ok("<|user|>\nb\n"));
        check("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", &[("user", "x")], true, {
            Ok("<s>x</s>")
        });
        check("{{ messages[0]['content'].strip().upper() }}", &[("user", " x ")], true, Ok("X"));
        check("{{ messages[0].content | tojson }}", &[("user", "q\"")], true, Ok("\"q\\\"\""));
        // Text in messages is data, never template.
        check("{{ messages[0].content }}", &[("user", "{{ 7 * 7 }}")], true, Ok("{{ 7 * 7 }}"));
        check("a\n{% if true %}\n  b\n  {% endif %}\nc", &[], true, Ok("a\n  b\nc"));
    }

    #[test]
    fn refusals_are_the_requests() {
        let roles = "{% for m in messages %}{% if m.role != 'user' %}\
                     {{ raise_exception('only users talk') }}{% endif %}{% endfor %}";
        check(roles, &[("user", "x"), ("tool", "y")], true, Err("only users talk"));
        check(roles, &[("user", "x")], true, Ok(""));
        check("{{ strftime_now('%Y') }}", &[], true, Err("strftime_now"));
        check("{{ messages[0].content.nothing() }}", &[("user", "x")], true, Err("nothing"));
    }

    #[test]
    fn malformed_templates_are_refused_at_load() {
        for source in ["{% for m in messages %}", "{{ 'open }}", "{% nonsense %}"] {
            let error = ChatTemplate::new(source, None, None).unwrap_err();
            assert!(matches!(error, ModelError::Template(_)), "{source}: {error}");
        }
        ChatTemplate::default_template();
    }
}
