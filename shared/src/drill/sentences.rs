//! Expectations as drills of former builds had them: a list of sentences. They are refused with the table that
//! says the same.
use toml::{Table, Value};

/// Where a drill file has sentences: the key, and what to write there instead.
pub(super) fn instead(file: &Table) -> Option<(String, String)> {
    let written = |of: &Table| {
        of.get("expect")
            .and_then(Value::as_array)
            .map(|all| table(all))
    };
    if let Some(table) = written(file) {
        return Some(("expect".to_owned(), table));
    }
    let series = file.get("series").and_then(Value::as_array)?;
    let tables = series.iter().map(|one| one.as_table().and_then(written));
    let (at, table) = tables
        .enumerate()
        .find_map(|(at, table)| Some((at, table?)))?;
    Some((format!("series.{at}.expect"), table))
}

/// The table of these sentences, in one line.
fn table(sentences: &[Value]) -> String {
    let mut table = Table::new();
    for sentence in sentences.iter().filter_map(Value::as_str) {
        let (key, value) = key_of(sentence.trim());
        match table.get_mut(key) {
            Some(Value::Array(all)) => all.push(value),
            Some(one) => *one = Value::Array(vec![one.clone(), value]),
            None if key == "compare" => {
                table.insert(key.to_owned(), Value::Array(vec![value]));
            }
            None => {
                table.insert(key.to_owned(), value);
            }
        }
    }
    Value::Table(table).to_string()
}

fn key_of(sentence: &str) -> (&'static str, Value) {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    match words.as_slice() {
        ["no", "restart"] => ("restart", "none".into()),
        [what @ ("role" | "task"), "restart"] => ("restart", (*what).into()),
        [count, "restart" | "restarts"] => (
            "restarts",
            count.parse::<i64>().map_or((*count).into(), Value::Integer),
        ),
        ["recovered", "within", time @ ..] => ("recovered_within", time.concat().into()),
        ["detected", "within", time @ ..] => ("detected_within", time.concat().into()),
        ["ETTR", "at", "least", share] => ("ettr_at_least", number(share)),
        ["goodput", "at", "least", share] => ("goodput_at_least", number(share)),
        ["nothing", "lost"] => ("lost", Value::Integer(0)),
        ["training", "goes", "on"] => ("job", "goes_on".into()),
        ["job", "fails"] => ("job", "fails".into()),
        ["weights", "identical"] | ["weights_identical"] => ("weights", "identical".into()),
        ["rule", name @ ..] => ("rule", name.join(" ").into()),
        ["event", ..] => ("event", event(sentence)),
        _ => ("compare", sentence.into()),
    }
}

fn number(text: &str) -> Value {
    text.parse::<f64>().map_or(text.into(), Value::Float)
}

fn event(sentence: &str) -> Value {
    let rest = sentence.strip_prefix("event").unwrap_or(sentence);
    let (kind, words) = rest.split_once(':').unwrap_or((rest, ""));
    let mut event = Table::new();
    event.insert("kind".to_owned(), kind.trim().into());
    if !words.trim().is_empty() {
        event.insert("words".to_owned(), words.trim().into());
    }
    Value::Table(event)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::expected::Expected;
    use super::*;

    #[test]
    fn every_sentence_of_former_builds_has_a_key_that_is_read() {
        let text = "expect = ['rule exit', 'rule exception', 'detected within 5 s', 'role restart', '4 restarts', \
                    'recovered within 60 s', 'training goes on', 'nothing lost', 'ETTR at least 0.8', \
                    'goodput at least 0.5', 'event poison: it is set aside', 'event slot', 'weights identical', \
                    'ettr_role >= 0.85']";
        let (key, written) = instead(&text.parse().unwrap()).unwrap();
        assert_eq!(key, "expect");
        let file: Table = format!("expect = {written}").parse().unwrap();
        let expected: Expected = file["expect"].clone().try_into().unwrap();
        let lines = expected.lines(&["none", "role"]);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "rule = \"exit\"",
                "rule = \"exception\"",
                "detected_within = \"5s\"",
                "restart = \"role\"",
                "restarts = 4",
                "recovered_within = \"60s\"",
                "job = \"goes_on\"",
                "lost = 0",
                "ettr_at_least = 0.8",
                "goodput_at_least = 0.5",
                "event = { kind = \"poison\", words = \"it is set aside\" }",
                "event = { kind = \"slot\" }",
                "weights = \"identical\"",
                "ettr_role >= 0.85",
            ]
        );
        for line in lines {
            line.read().unwrap();
        }
    }

    #[test]
    fn a_table_has_nothing_to_be_replaced() {
        let text =
            "expect = { restart = 'role' }\n[[series]]\nname = 's'\n[series.expect]\nlost = 0\n";
        assert_eq!(instead(&text.parse().unwrap()), None);
        let text = "[[series]]\nname = 's'\nexpect = ['no restart']\n";
        let (key, written) = instead(&text.parse().unwrap()).unwrap();
        assert_eq!(key, "series.0.expect");
        assert_eq!(written, "{ restart = \"none\" }");
    }
}
