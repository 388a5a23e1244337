//! Tokenizers.
use weft::{Specials, Tokenizer};

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
    assert_eq!(Tokenizer::parse(b"{}").err().unwrap().to_string(), "has no 'model'");
}
