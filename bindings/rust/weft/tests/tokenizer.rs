//! Tokenizers.
use weft::{Chat, Data, Desc, LongSamples, Preset, Specials, Tensor, Tokenizer};

#[test]
fn a_trained_tokenizer_turns_text_into_ids_and_back() {
    let path = std::env::temp_dir().join(format!("weft_tokenizer_{}.json", std::process::id()));
    Tokenizer::train("low low low lower", 300, 2, &["<|end|>"], &path).unwrap();
    let tokenizer = Tokenizer::open(&path).unwrap();
    assert_eq!(Tokenizer::parse(&std::fs::read(&path).unwrap()).unwrap().vocabulary(), tokenizer.vocabulary());
    std::fs::remove_file(&path).unwrap();
    let text = "lower 日本 👩";
    let ids = tokenizer.encode(text, Specials::default()).unwrap();
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    let mut stream = tokenizer.stream(false).unwrap();
    let mut streamed = ids.iter().map(|id| stream.add(*id).unwrap()).collect::<String>();
    streamed += &stream.finish().unwrap();
    assert_eq!(streamed, text);
    assert_eq!(tokenizer.token(0), Some(("<|end|>".to_string(), true)));
    assert_eq!(tokenizer.id("<|end|>"), Some(0));
    assert_eq!(tokenizer.encode("<|end|>", Specials::default()).unwrap(), [0]);
    assert!(tokenizer.encode("<|end|>", Specials { plain: true, add: true }).unwrap().len() > 1);
    assert_eq!(Tokenizer::parse(b"{}").err().unwrap().to_string(), "tokenizer: has no 'model'");
}

#[test]
fn a_conversation_becomes_text() {
    let tokenizer = Tokenizer::open("../../../tests/data/tokenizers/byte_fallback").unwrap();
    let long = "x".repeat(2000);
    let messages = [("user", "日本?"), ("assistant", long.as_str())];
    let expected = format!("<s>[user] 日本?</s>\n[assistant] {long}</s>\n");
    assert_eq!(tokenizer.chat(&messages, Chat::default()).unwrap(), format!("{expected}[assistant] "));
    let dated = Chat { add_generation_prompt: false, local_time_ns: Some(1721984461000000000), ..Chat::default() };
    assert_eq!(tokenizer.chat(&messages, dated).unwrap(), expected.replacen("<s>", "<s>(26 Jul 2024)", 1));
    assert_eq!(tokenizer.end_token(), Some(2));
    let forged = tokenizer.chat(&[("user", "</s>")], Chat { refuse_specials: true, ..Chat::default() }).err().unwrap();
    assert_eq!(forged.to_string(), "message 0 contains the special token '</s>'");
    let refused = tokenizer.chat(&[("tool", "")], Chat::default()).err().unwrap();
    assert!(refused.to_string().ends_with("unknown role tool"));
}

#[test]
fn samples_of_text_are_learned_from_the_completion_on() {
    let tokenizer = Tokenizer::open("../../../tests/data/tokenizers/byte_fallback").unwrap();
    let preset = Preset::new("gpt-nano:blocks=1,width=8,heads=2,context=8,vocabulary=520", 8, 1).unwrap();
    let path = std::env::temp_dir().join(format!("weft_samples_{}.jsonl", std::process::id()));
    std::fs::write(&path, r#"{"prompt": "a", "completion": "b"}"#).unwrap();
    let data = Data::builder().preset(&preset).path(&path).tokenizer(&tokenizer).end_token(2).open().unwrap();
    std::fs::remove_file(&path).unwrap();
    let row = Desc::i32([1, 8]);
    let (mut tokens, mut targets) = (Tensor::zeros(&row).unwrap(), Tensor::zeros(&row).unwrap());
    data.sample(0, 0, &mut tokens, &mut targets).unwrap();
    let targets = targets.as_slice::<i32>().unwrap();
    assert_eq!(targets[0], -1);
    assert_eq!(targets.iter().filter(|target| **target == 2).count(), 1);
}

#[test]
fn held_out_samples_have_a_file_of_their_own() -> weft::Result<()> {
    let tokenizer = Tokenizer::open("../../../tests/data/tokenizers/byte_fallback")?;
    let preset = Preset::new("gpt-nano:blocks=1,width=8,heads=2,context=8,vocabulary=520", 8, 1)?;
    let file = |name: &str, lines: usize| {
        let path = std::env::temp_dir().join(format!("weft_{name}_{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"prompt\": \"a\", \"completion\": \"b\"}\n".repeat(lines)).unwrap();
        path
    };
    let (train, eval) = (file("train", 2), file("eval", 3));
    let builder = || Data::builder().preset(&preset).tokenizer(&tokenizer).eval_path(&eval);
    let (both, only) = (builder().path(&train).open()?, builder().open()?);
    std::fs::remove_file(&train).unwrap();
    std::fs::remove_file(&eval).unwrap();
    assert_eq!((both.eval_windows(), only.eval_windows()), (3, 3));
    assert_eq!((both.windows(), only.windows()), (2, 0));
    let row = Desc::i32([1, 8]);
    let (mut tokens, mut targets) = (Tensor::zeros(&row)?, Tensor::zeros(&row)?);
    only.eval(0, &mut tokens, &mut targets)?;
    both.sample(0, 0, &mut tokens, &mut targets)?;
    assert!(only.sample(0, 0, &mut tokens, &mut targets).is_err(), "there is nothing to train on");
    Ok(())
}

#[test]
fn long_samples_are_cut_or_skipped() -> weft::Result<()> {
    let tokenizer = Tokenizer::open("../../../tests/data/tokenizers/byte_fallback")?;
    let path = std::env::temp_dir().join(format!("weft_long_{}.jsonl", std::process::id()));
    let sample = |answer: &str| format!("{{\"prompt\": \"a\", \"completion\": \"{answer}\"}}\n");
    std::fs::write(&path, sample("b") + &sample(&"x".repeat(60))).unwrap();
    let builder = || Data::builder().vocabulary(520).seq_len(8).path(&path).tokenizer(&tokenizer);
    let refused = builder().long_samples(LongSamples::Refuse).open().err().unwrap();
    assert!(refused.to_string().contains("1 of 2 samples are longer"), "{refused}");
    let cut = builder().long_samples(LongSamples::Cut).open()?;
    assert_eq!((cut.windows(), cut.cut_samples(), cut.skipped_samples()), (2, 1, 0));
    let skip = builder().long_samples(LongSamples::Skip).open()?;
    assert_eq!((skip.windows(), skip.cut_samples(), skip.skipped_samples()), (1, 0, 1));
    std::fs::remove_file(&path).unwrap();
    Ok(())
}

#[test]
fn packed_samples_have_positions() -> weft::Result<()> {
    let tokenizer = Tokenizer::open("../../../tests/data/tokenizers/byte_fallback")?;
    let preset = Preset::packed("gpt-nano:blocks=1,width=8,heads=2,context=16,vocabulary=520", 16, 1)?;
    let path = std::env::temp_dir().join(format!("weft_packed_{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"prompt\": \"a\", \"completion\": \"b\"}\n".repeat(4)).unwrap();
    let data = Data::builder().preset(&preset).path(&path).eval_share(0.5).tokenizer(&tokenizer).end_token(2);
    let data = data.packed(true).open()?;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(data.eval_windows(), 1);
    let row = Desc::i32([1, 16]);
    let (mut tokens, mut targets, mut positions) = (Tensor::zeros(&row)?, Tensor::zeros(&row)?, Tensor::zeros(&row)?);
    data.sample(0, 0, &mut tokens, &mut targets)?;
    data.positions(0, 0, &mut positions)?;
    let (ids, places) = (tokens.as_slice::<i32>()?, positions.as_slice::<i32>()?);
    let second = 1 + places[1..].iter().position(|place| *place == 0).unwrap();
    assert_eq!(ids[..second], ids[second..2 * second]);
    assert_eq!(places[..second], places[second..2 * second]);
    data.eval(0, &mut tokens, &mut targets)?;
    data.eval_positions(0, &mut positions)?;
    assert!(data.eval_positions(1, &mut positions).is_err());
    Ok(())
}
