//! Tokenizers of Hugging Face's form: chat templates, and which tokens end an answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use robust_shared::job::Job;
use robust_worker::model::reward::{final_answer, reward};
use robust_worker::model::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// A folder with a byte-level tokenizer of Qwen's kind: no `<bos>`, no tools' tokens.
struct Folder(tempfile::TempDir);

/// As Qwen3 writes it: blocks on lines of their own, slices, methods of Python's strings.
const TEMPLATE: &str = r#"{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.content.startswith('<tool>') %}
        {{- raise_exception('no tools here: ' + message.content.split('>')[-1]) }}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content.strip() + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"#;

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        // Every byte is a token, as in a byte-level vocabulary without merges.
        let bytes = (33..=126).chain(161..=172).chain(174..=255);
        let shown = bytes.chain(256..=323).filter_map(char::from_u32);
        let mut vocab: serde_json::Map<String, Value> = (0..)
            .zip(shown)
            .map(|(id, shown)| (shown.to_string(), json!(id)))
            .collect();
        let first = vocab.len();
        let specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
        let added = specials.iter().enumerate().map(|(n, content)| {
            json!({"id": first + n, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        });
        let added: Vec<Value> = added.collect();
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": false});
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "byte_fallback": false, "vocab": std::mem::take(&mut vocab), "merges": []},
        });
        folder.write("tokenizer.json", &tokenizer.to_string());
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn config(&self, config: Value) {
        self.write("tokenizer_config.json", &config.to_string());
    }

    fn load(&self, chat_template: bool) -> Result<Tokenizer, String> {
        let text = format!(
            "[data]\nprompts = \"p\"\ntokenizer = \"tokenizer.json\"\nchat_template = {chat_template}\n"
        );
        let mut job = Job::parse(&text, Path::new("j.toml")).unwrap();
        job.resolve(self.0.path());
        Tokenizer::of_data(&job, self.0.path()).map_err(|error| error.to_string())
    }
}

fn texts(tokenizer: &Tokenizer, ids: &[i64]) -> String {
    tokenizer.decode(ids).unwrap()
}

#[test]
fn a_prompt_goes_through_the_chat_template_where_the_job_wants_it() {
    let folder = Folder::new();
    folder.config(json!({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}));
    let plain = folder.load(false).unwrap();
    assert_eq!(
        texts(&plain, &plain.encode_prompt("1+1 = é?").unwrap()),
        "1+1 = é?"
    );
    let chat = folder.load(true).unwrap();
    let ids = chat.encode_prompt(" 1+1 = é?\n").unwrap();
    let expected = "<|im_start|>user\n1+1 = é?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(texts(&chat, &ids), expected);
    // The template's special tokens are tokens, not text.
    assert_eq!(ids[0], chat.encode("<|im_start|>").unwrap()[0]);
    assert_eq!(chat.encode("<|im_start|>").unwrap().len(), 1);
}

#[test]
fn a_template_may_be_one_of_several_or_a_file_of_its_own() {
    let folder = Folder::new();
    let named = json!([{"name": "tool_use", "template": "no"},
        {"name": "default", "template": "{{ eos_token }}{{ messages[0].content }}"}]);
    let eos = json!({"content": "<|im_end|>", "special": true});
    folder.config(json!({"eos_token": eos, "chat_template": named}));
    let chat = folder.load(true).unwrap();
    assert_eq!(
        texts(&chat, &chat.encode_prompt("a").unwrap()),
        "<|im_end|>a"
    );
    folder.write("chat_template.jinja", "file: {{ messages[0].content }}");
    let chat = folder.load(true).unwrap();
    assert_eq!(texts(&chat, &chat.encode_prompt("a").unwrap()), "file: a");
}

#[test]
fn templates_that_are_missing_or_fail_are_named_with_their_words() {
    let folder = Folder::new();
    folder.config(json!({"eos_token": "<|im_end|>"}));
    assert!(folder.load(false).is_ok());
    let error = folder.load(true).unwrap_err();
    assert!(
        error.contains("data.chat_template is set, and there is no chat template"),
        "{error}"
    );
    folder.config(json!({"eos_token": "<|im_end|>", "chat_template": "{% for %}"}));
    let error = folder.load(true).unwrap_err();
    assert!(
        error.contains("tokenizer_config.json: syntax error"),
        "{error}"
    );
    folder.config(json!({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}));
    let refused = folder
        .load(true)
        .unwrap()
        .encode_prompt("<tool>x")
        .unwrap_err();
    assert!(
        refused.to_string().contains("no tools here: x"),
        "{refused}"
    );
    folder.write("tokenizer_config.json", "{");
    let error = folder.load(false).unwrap_err();
    assert!(error.contains("tokenizer_config.json: EOF"), "{error}");
}

#[test]
fn any_of_the_models_end_tokens_ends_an_answer() {
    let folder = Folder::new();
    let error = folder.load(false).unwrap_err();
    assert!(error.contains("no token that ends an answer"), "{error}");
    folder.config(json!({"eos_token": "<|nothing|>"}));
    let error = folder.load(false).unwrap_err();
    assert!(error.ends_with("has no token \"<|nothing|>\""), "{error}");
    folder.config(json!({"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}));
    let tokenizer = folder.load(false).unwrap();
    let [text_end, _, turn_end] =
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(|t| tokenizer.encode(t).unwrap()[0]);
    assert_eq!(tokenizer.specials().eos, [text_end]);
    assert_eq!(
        (tokenizer.specials().pad, tokenizer.specials().bos),
        (text_end, None)
    );
    let ends = json!({"eos_token_id": [turn_end, text_end], "pad_token_id": text_end});
    folder.write("generation_config.json", &ends.to_string());
    let tokenizer = folder.load(false).unwrap();
    assert_eq!(tokenizer.specials().stops(), [turn_end, text_end]);
    for end in [turn_end, text_end] {
        let mut response = tokenizer.encode("46").unwrap();
        response.push(end);
        assert_eq!(reward(&tokenizer, &response, "46"), 1.0);
        assert_eq!(final_answer(&tokenizer, &response).as_deref(), Some("46"));
    }
    // Without tokens for calls there are none, and no results.
    assert_eq!(
        tokenizer.parse_call(&tokenizer.encode("<call>1</call>").unwrap()),
        None
    );
    assert!(tokenizer.encode_result("1").unwrap().is_empty());
}
