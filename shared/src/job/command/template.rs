//! Text with placeholders: `{port}` is what the daemon knows when it starts the program, `{{` and
//! `}}` are braces.
use super::placeholder::Placeholder;
use std::fmt;

/// A text with placeholders, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it stands.
    Text(String),
    /// To be filled in.
    Placeholder(Placeholder),
}

/// A text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A name in braces that means nothing.
    #[error("`{{{name}}}`, which is no placeholder; {}", instead(.nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The placeholder that was probably meant, with its braces.
        nearest: Option<String>,
    },
    /// A brace that opens or closes nothing.
    #[error("a `{brace}` without its other half; write `{brace}{brace}` for a brace as such")]
    Brace {
        /// Which.
        brace: char,
    },
}

/// A placeholder for which there is no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no value for `{placeholder}`")]
pub struct Missing {
    /// Which.
    pub placeholder: Placeholder,
}

impl Template {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            template.text(&rest[..at]);
            let brace = if rest[at..].starts_with('{') {
                '{'
            } else {
                '}'
            };
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                template.text(brace.encode_utf8(&mut [0; 4]));
                rest = after;
                continue;
            }
            let (name, after) = match rest.split_once('}') {
                Some(parts) if brace == '{' => parts,
                _ => return Err(TemplateError::Brace { brace }),
            };
            template.parts.push(Part::Placeholder(named(name)?));
            rest = after;
        }
        template.text(rest);
        Ok(template)
    }

    /// Its pieces, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Its placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// The text with these values; the first placeholder without one is the error.
    pub fn expand(
        &self,
        value: &impl Fn(&Placeholder) -> Option<String>,
    ) -> Result<String, Missing> {
        let each = self.parts.iter().map(|part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Placeholder(placeholder) => value(placeholder).ok_or_else(|| Missing {
                placeholder: placeholder.clone(),
            }),
        });
        each.collect()
    }

    fn text(&mut self, more: &str) {
        match self.parts.last_mut() {
            _ if more.is_empty() => {}
            Some(Part::Text(text)) => text.push_str(more),
            _ => self.parts.push(Part::Text(more.to_owned())),
        }
    }
}

/// As it is to be written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Part::Placeholder(placeholder) => write!(f, "{placeholder}"),
        })
    }
}

/// JSON is what else comes in braces.
fn named(name: &str) -> Result<Placeholder, TemplateError> {
    if name.contains(['{', '"', '\'', ' ']) {
        return Err(TemplateError::Brace { brace: '{' });
    }
    Placeholder::named(name).map_err(|nearest| TemplateError::Unknown {
        name: name.to_owned(),
        nearest,
    })
}

fn instead(nearest: Option<&str>) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write `{{` for a brace as such".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Scope;
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> String {
        Template::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn placeholders_are_filled_in_and_doubled_braces_are_braces() {
        let text = "--a={bind}:{port1} {{\"n\": {index}}} {env:HOME} {service.judge}";
        let template = Template::parse(text).unwrap();
        assert_eq!(template.placeholders().count(), 5);
        let value = |p: &Placeholder| match p {
            Placeholder::Bind => Some("127.0.0.1".to_owned()),
            Placeholder::Port(n) => Some((31_000 + n).to_string()),
            Placeholder::Index => Some("2".to_owned()),
            Placeholder::Env(name) => Some(format!("${name}")),
            Placeholder::Service(name) => Some(format!("{name}:80")),
            _ => None,
        };
        let filled = template.expand(&value).unwrap();
        assert_eq!(filled, "--a=127.0.0.1:31001 {\"n\": 2} $HOME judge:80");
        assert_eq!(template.to_string(), text);
    }

    #[test]
    fn what_is_filled_in_is_not_read_again() {
        let template = Template::parse("{job}").unwrap();
        assert_eq!(
            template.expand(&|_| Some("{port}".to_owned())).unwrap(),
            "{port}"
        );
    }

    #[test]
    fn a_placeholder_without_a_value_is_named() {
        let template = Template::parse("{port} {model}").unwrap();
        let known = |p: &Placeholder| (*p == Placeholder::Port(0)).then(|| "1".to_owned());
        let missing = template.expand(&known).unwrap_err();
        assert_eq!(missing.to_string(), "there is no value for `{model}`");
    }

    #[test]
    fn a_name_that_there_is_not_gets_the_nearest_one() {
        for (text, words) in [
            (
                "{prot}",
                "`{prot}`, which is no placeholder; did you mean `{port}`?",
            ),
            (
                "{port0}",
                "`{port0}`, which is no placeholder; did you mean `{port}`?",
            ),
            (
                "{port01}",
                "`{port01}`, which is no placeholder; did you mean `{port}`?",
            ),
            (
                "{en:X}",
                "`{en:X}`, which is no placeholder; did you mean `{env:NAME}`?",
            ),
            (
                "{servce.x}",
                "`{servce.x}`, which is no placeholder; did you mean `{service.NAME}`?",
            ),
            (
                "{colour}",
                "`{colour}`, which is no placeholder; write `{{` for a brace as such",
            ),
            (
                "{\"a\": 1}",
                "a `{` without its other half; write `{{` for a brace as such",
            ),
            (
                "{port",
                "a `{` without its other half; write `{{` for a brace as such",
            ),
            (
                "port}",
                "a `}` without its other half; write `}}` for a brace as such",
            ),
        ] {
            assert_eq!(refused(text), words, "{text}");
        }
    }

    #[test]
    fn every_placeholder_is_written_as_it_is_read() {
        let all = "index incarnation generation rank world_size local_rank master_addr master_port slots devices port \
                   port1 port12 bind advertise model job state shm uds checkpoint step \
                   service.reward rollouts env:HOME";
        for name in all.split_whitespace() {
            let placeholder = Placeholder::named(name).unwrap();
            assert_eq!(placeholder.to_string(), format!("{{{name}}}"));
        }
        let of_rollouts = Scope::Rollout.placeholders();
        assert!(of_rollouts.contains("`{uds}`") && !of_rollouts.contains("`{rank}`"));
    }

    proptest! {
        #[test]
        fn any_text_that_is_escaped_comes_back(text in any::<String>()) {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            let template = Template::parse(&escaped).unwrap();
            prop_assert_eq!(template.expand(&|_| None).unwrap(), text);
        }

        #[test]
        fn random_braces_never_panic_and_what_is_read_is_written_back(
            text in "([{}a-z:.0-9\" ]|port|env:|service\\.){0,20}"
        ) {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
