//! The rule-based reward: is the final answer the right number?

use super::tokenizer::Tokenizer;

/// Reward of a response (everything after the prompt): 1 if what follows the last tool result is
/// exactly the answer and a token that ends it, else 0. There is no part for form: a call without the right
/// answer is worth nothing, so that nothing but the answer can be optimised.
pub fn reward(tokenizer: &Tokenizer, response: &[i64], answer: &str) -> f64 {
    match final_answer(tokenizer, response) {
        Some(text) if text == answer => 1.0,
        _ => 0.0,
    }
}

/// The final answer of a complete response: the text after the last tool result, or after the
/// prompt if there was none. None if the response is cut off or has special tokens there.
pub fn final_answer(tokenizer: &Tokenizer, response: &[i64]) -> Option<String> {
    let specials = tokenizer.specials();
    let (last, body) = response.split_last()?;
    if !specials.eos.contains(last) {
        return None;
    }
    let result_end = specials.tools.map(|tools| tools.res_end);
    let start = body
        .iter()
        .rposition(|&id| Some(id) == result_end)
        .map_or(0, |at| at + 1);
    let tail = &body[start..];
    if tail.is_empty() || tail.iter().any(|id| specials.contains(*id)) {
        return None;
    }
    tokenizer.decode(tail).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/tokenizers/arith"
        );
        Tokenizer::load(&std::path::Path::new(folder).join("tokenizer.json")).unwrap()
    }

    fn score(response: &str, answer: &str) -> f64 {
        let tokenizer = tokenizer();
        reward(&tokenizer, &tokenizer.encode(response).unwrap(), answer)
    }

    #[test]
    fn a_right_answer_earns_one_with_and_without_the_tool() {
        assert_eq!(score("46<eos>", "46"), 1.0);
        assert_eq!(score("<call>12+34</call><res>46</res>46<eos>", "46"), 1.0);
        assert_eq!(score("<call>1-3</call><res>-2</res>-2<eos>", "-2"), 1.0);
    }

    #[test]
    fn anything_else_earns_nothing() {
        for response in [
            "47<eos>",
            "46",
            "<eos>",
            "",
            "046<eos>",
            "46 <eos>",
            "<call>12+34</call><res>46</res><eos>",
            "<call>12+34</call>",
            "46<call>12+34</call><res>46</res>4<eos>",
            "46<call><eos>",
            "46<pad><eos>",
        ] {
            assert_eq!(score(response, "46"), 0.0, "{response}");
        }
    }

    #[test]
    fn a_call_is_found_only_at_the_end_and_without_other_specials() {
        let tokenizer = tokenizer();
        let parse = |text: &str| tokenizer.parse_call(&tokenizer.encode(text).unwrap());
        assert_eq!(parse("<call>12+34</call>").as_deref(), Some("12+34"));
        assert_eq!(
            parse("<call>1</call><res>1</res><call>2*3</call>").as_deref(),
            Some("2*3")
        );
        assert_eq!(parse("<call></call>").as_deref(), Some(""));
        for text in [
            "12+34</call>",
            "<call>12+34",
            "<call>1</call>5",
            "<call>1<eos></call>",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
