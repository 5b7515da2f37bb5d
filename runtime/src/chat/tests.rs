use super::*;
use crate::run::tests::tokenizer;

fn messages(texts: &[(&str, &str)]) -> Vec<Message> {
    texts
        .iter()
        .map(|&(role, text)| Message::new(role, text))
        .collect()
}

fn render(template: &str, texts: &[(&str, &str)]) -> Result<String> {
    ChatTemplate::new(template, &tokenizer(), Interpreter::Here)?.render(
        &messages(texts),
        true,
        &serde_json::Map::new(),
    )
}

const TALK: &[(&str, &str)] = &[
    ("system", " Be kind. "),
    ("user", "one"),
    ("assistant", "<think>\nhm\n</think>\n\nfine"),
    ("user", "ä <b>'q'\n"),
];

#[test]
fn no_chain_of_operators_uses_the_stack_up() {
    for link in ["-", "+1", "not ", ".a", "[0]", "|string", " is defined"] {
        let chain = link.repeat(MAX_SOURCE / link.len() - 8);
        let template = match link {
            "-" | "not " => format!("{{{{ {chain}1 }}}}"),
            _ => format!("{{{{ 1{chain} }}}}"),
        };
        // Any answer will do.
        let _ = render(&template, TALK).is_ok();
    }
    let long = "x".repeat(MAX_SOURCE + 1);
    assert!(
        render(&long, TALK)
            .unwrap_err()
            .to_string()
            .contains("expected at most")
    );
}

// Expected texts are those of Jinja2 3.1.6, set up as `apply_chat_template` does.

#[test]
fn what_real_templates_use_is_there() {
    let llama2 = "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}\
         {% set first = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set first = false %}{% endif %}\
         {% for message in rest %}{% if loop.index0 == 0 and first %}\
         {% set content = '<<SYS>>\\n' + first + '\\n<</SYS>>\\n\\n' + message['content'] %}\
         {% else %}{% set content = message['content'] %}{% endif %}\
         {% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
         {% else %}{{ ' ' + content.split('</think>')[-1].lstrip('\\n') + eos_token }}{% endif %}{% endfor %}";
    assert_eq!(
        render(llama2, TALK).unwrap(),
        "<bos>[INST] <<SYS>>\n Be kind. \n<</SYS>>\n\none [/INST] fine<eos><bos>[INST] ä <b>'q' [/INST]"
    );
    let qwen3 = "{%- set ns = namespace(seen=false, last=messages|length - 1) %}\n\
         {%- for message in messages[::-1] %}\n\
         {%- set index = (messages|length - 1) - loop.index0 %}\n\
         {%- if not ns.seen and message.role == 'user' and message.content is string %}\n\
         {%- set ns.seen = true %}{%- set ns.last = index %}\n    {%- break %}\n{%- endif %}\n{%- endfor %}\n\
         {%- for message in messages %}\n    {{- '<|' + message.role + '|>' + message.content|trim }}\n\
         {%- if loop.index0 == ns.last and not tools %}{{- ' (last)' }}{%- endif %}\n{%- endfor %}\n\
         {%- if add_generation_prompt %}\n    {{- '<|assistant|>' }}\n\
         {%- if enable_thinking is defined and enable_thinking is false %}{{- 'now' }}{%- endif %}\n{%- endif %}";
    let expected = "<|system|>Be kind.<|user|>one<|assistant|><think>\nhm\n</think>\n\nfine<|user|>ä <b>'q' (last)<|assistant|>";
    assert_eq!(render(qwen3, TALK).unwrap(), expected);
    let more = serde_json::from_str(r#"{"enable_thinking": false}"#).unwrap();
    let template = ChatTemplate::new(qwen3, &tokenizer(), Interpreter::Here).unwrap();
    let text = template.render(&messages(TALK), true, &more).unwrap();
    assert_eq!(text, format!("{expected}now"));
    let text = template.render(&messages(TALK), false, &more).unwrap();
    assert_eq!(format!("{text}<|assistant|>"), expected);
}

#[test]
fn blocks_are_trimmed_and_generation_marks_passed_through() {
    let template = "{% for m in messages %}\n  {% generation %}\n    {{ m.content|trim }}\n  {%- endgeneration -%}\n  z\n\
                    {% endfor %}";
    let texts = &[("user", "one"), ("user", "two")];
    assert_eq!(render(template, texts).unwrap(), "    onez\n    twoz\n");
    let spaces = "  {% if true %}\n    a\n  {% endif %}\n\t{# c #}\nb\n  {%+ if true %} k {% endif +%}\nz {{ 'q' -}}\n   r\n";
    assert_eq!(render(spaces, texts).unwrap(), "    a\nb\n   k \nz qr");
}

#[test]
fn values_print_as_in_python() {
    let template = "{{ none }} {{ true }} {{ [1, 'a', none, 1.5] }} {{ {'a': [1]} }} {{ 7 / 2 }} {{ 7 // 2 }} {{ foo }}|\
                    {{ 'a,b'.split(',') }} {{ messages[-1].role.title() }} {{ messages[0].get('x', 'y') }}";
    assert_eq!(
        render(template, &[("user", "x")]).unwrap(),
        "None True [1, 'a', None, 1.5] {'a': [1]} 3.5 3 |['a', 'b'] User y"
    );
    let json = "{{ messages|tojson }}\n{{ {'a': [], 'b': {}, 'c': [1, {'d': none}]}|tojson(indent=2) }}\n\
                {{ {'b': 1.0, 'a': \"<&'\"}|tojson(separators=(',', ':'), sort_keys=true) }}";
    assert_eq!(
        render(json, &[("user", "ä <b>'q' \"z\"\n")]).unwrap(),
        "[{\"role\": \"user\", \"content\": \"ä <b>'q' \\\"z\\\"\\n\"}]\n\
         {\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": null\n    }\n  ]\n}\n\
         {\"a\":\"<&'\",\"b\":1.0}"
    );
    for wrong in [
        "{{ 1|tojson(indent=99999) }}",
        "{{ 1|tojson(ensure_ascii=true) }}",
        "{{ 1|tojson(foo=1) }}",
    ] {
        assert!(render(wrong, TALK).is_err(), "{wrong}");
    }
}

#[test]
fn refusals_name_the_line_and_the_reason() {
    let told = |template: &str| render(template, TALK).unwrap_err().to_string();
    assert_eq!(
        told("{% if messages %}\n{{ raise_exception('System role not supported') }}{% endif %}"),
        "chat template, line 2: System role not supported"
    );
    assert!(told("a\nb{% for %}").starts_with("chat template, line 2: "));
    assert!(told("{{ messages.foo.bar }}").starts_with("chat template, line 1: "));
    assert!(told("{{ strftime_now('%Q') }}").contains("`%Q`"));
    assert!(told("{{ messages|nofilter }}").contains("nofilter"));
}

#[test]
fn templates_without_end_or_measure_are_stopped() {
    for template in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'x' * 99999999999 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ] {
        let e = render(template, TALK).unwrap_err().to_string();
        assert!(e.starts_with("chat template"), "{e}");
    }
    let deep = "{{ ".to_owned() + &"(".repeat(100_000);
    assert!(render(&deep, TALK).is_err());
    // A long conversation is no endless template.
    let long = "x".repeat(8 << 20);
    let template = "{% for m in messages %}{{ m.role + ': ' + m.content|trim + '\\n' }}{% endfor %}";
    let text = render(template, &[("user", &long), ("assistant", &long)]).unwrap();
    assert_eq!(text.len(), 2 * long.len() + "user: \nassistant: \n".len());
}

#[test]
fn templates_of_a_file_have_names() {
    let mut metadata = Metadata::new();
    let of = |metadata: &Metadata, name| {
        let template = ChatTemplate::from_metadata(metadata, name, &tokenizer(), Interpreter::Here);
        template.map(|t| t.map(|t| t.render(&messages(TALK), true, &serde_json::Map::new()).unwrap()))
    };
    assert!(of(&metadata, None).unwrap().is_none());
    let chatml = of(&metadata, Some("chatml")).unwrap().unwrap();
    assert!(chatml.ends_with("<|im_start|>user\nä <b>'q'\n<|im_end|>\n<|im_start|>assistant\n"));
    metadata.set(key::CHAT_TEMPLATE, gguf::Value::String("usual".into()));
    metadata.set(
        "tokenizer.chat_template.tool_use",
        gguf::Value::String("tools".into()),
    );
    assert_eq!(of(&metadata, None).unwrap().unwrap(), "usual");
    assert_eq!(of(&metadata, Some("default")).unwrap().unwrap(), "usual");
    assert_eq!(of(&metadata, Some("tool_use")).unwrap().unwrap(), "tools");
    assert_eq!(
        of(&metadata, Some("foo")).unwrap_err().to_string(),
        "chat template `foo`: expected a template or one of the names `tool_use`, `default`, `chatml`"
    );
}

/// Lists in lists: one in the next, so often, or twice in the next.
fn nested(times: usize, next: &str, end: &str) -> String {
    format!(
        "{{% set ns = namespace(x=[1]) %}}{{% for a in range({}) %}}{{% for b in range({}) %}}{{% set ns.x = {next} %}}\
         {{% endfor %}}{{% endfor %}}{end}",
        times.div_ceil(5000),
        times.min(5000)
    )
}

#[test]
fn no_nested_value_uses_the_stack_up() {
    let ends = "{{ ns.x }}{{ ns.x|tojson }}{{ [ns.x] == [ns.x] }}{{ ns.x < [ns.x] }}{{ {ns.x: 1}|length }}";
    for next in ["[ns.x]", "{'x': ns.x}", "namespace(x=ns.x)"] {
        // Any answer will do.
        let _ = render(&nested(90_000, next, ends), TALK).is_ok();
    }
    // Longer messages may make deeper ones.
    let talk = "m".repeat(1 << 18);
    let _ = render(&nested(330_000, "[ns.x]", "{{ ns.x }}"), &[("user", &talk)]).is_ok();
}

#[test]
fn values_that_share_parts_are_not_written_without_end() {
    let json = render(&nested(60, "[ns.x, ns.x]", "{{ ns.x|tojson }}"), TALK);
    let sorted = render(
        &nested(60, "{'a': ns.x, 'b': ns.x}", "{{ ns.x|tojson(sort_keys=true) }}"),
        TALK,
    );
    for refused in [json, sorted] {
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("more steps or memory than"), "{told}");
    }
}

#[test]
fn a_machine_that_has_no_process_for_it_is_not_the_templates_fault() {
    let absent = Interpreter::Apart("/proc/self/absent".into());
    let refused = ChatTemplate::new("x", &tokenizer(), absent).unwrap_err();
    assert!(matches!(refused, Error::Settings(_)), "{refused:?}");
    assert!(
        refused.to_string().starts_with("chat template: no process"),
        "{refused}"
    );
}
