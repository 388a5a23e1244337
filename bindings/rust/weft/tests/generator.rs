//! Closures that choose tokens: what they see and change, failures and panics, and when they are dropped.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};

use weft::{Choice, Error, Generator, OpResult, Plan, Preset, Run, SequenceConfig, Status, StepKind};

/// A generator with places for 2 sequences of 20 tokens.
fn generator() -> weft::Result<Generator> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=2,width=32,heads=2,context=20", 2, 0, false)?;
    let builder = Plan::builder().micro_batches(1).micro_batch_size(8).step_kinds([StepKind::Forward]);
    Generator::new(Run::start(&builder.build(&mut decoder.model)?)?)
}

fn limit(limit: u64) -> SequenceConfig {
    SequenceConfig { limit, ..SequenceConfig::default() }
}

/// The tokens of a sequence, and the failures of all, until the generator has no sequence.
fn made(generator: &mut Generator, sequence: u64) -> (Vec<i32>, Vec<Error>) {
    let (mut tokens, mut failures) = (Vec::new(), Vec::new());
    loop {
        match generator.poll(None) {
            Ok(Some(token)) if token.sequence == sequence => tokens.push(token.token),
            Ok(Some(_)) => (),
            Ok(None) => return (tokens, failures),
            Err(error) => failures.push(error),
        }
    }
}

fn only_even(choice: Choice) -> OpResult {
    choice.logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY);
    Ok(())
}

#[test]
fn tokens_are_excluded_from_one_sequence() -> weft::Result<()> {
    let mut generator = generator()?;
    let other = generator.add(&[7], &limit(8))?;
    let (expected, _) = made(&mut generator, other);
    let even = generator.add_with(&[1, 2, 3], &limit(8), only_even)?;
    let other = generator.add(&[7], &limit(8))?;
    let (mut evens, mut others) = (Vec::new(), Vec::new());
    while let Some(token) = generator.poll(None)? {
        if token.sequence == even { &mut evens } else { &mut others }.push(token);
    }
    assert_eq!(evens.len(), 8);
    assert!(evens.iter().all(|token| token.token % 2 == 0), "{evens:?}");
    assert!(others.iter().all(|token| token.sequence == other));
    assert_eq!(others.iter().map(|token| token.token).collect::<Vec<_>>(), expected);
    assert!(expected.iter().any(|token| token % 2 == 1), "{expected:?}");
    Ok(())
}

#[test]
fn a_choice_has_the_logits_from_which_the_token_is_chosen() -> weft::Result<()> {
    let mut generator = generator()?;
    let (sender, receiver) = mpsc::channel();
    let config = SequenceConfig { temperature: 0.0, first: 10, ..limit(4) };
    let sequence = generator.add_with(&[1, 2, 3], &config, move |choice: Choice| {
        let largest = (0..choice.logits.len()).max_by(|a, b| choice.logits[*a].total_cmp(&choice.logits[*b]));
        sender.send((choice.sequence, choice.index, choice.tokens.to_vec(), largest.ok_or("no logits")? as i32))?;
        Ok(())
    })?;
    let (tokens, failures) = made(&mut generator, sequence);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(tokens.len(), 4);
    let mut text = vec![1, 2, 3];
    for (index, token) in (10..).zip(tokens) {
        assert_eq!(receiver.recv().unwrap(), (sequence, index, text.clone(), token));
        text.push(token);
    }
    assert!(receiver.recv().is_err(), "the closure is dropped");
    Ok(())
}

#[test]
fn a_failure_and_a_panic_end_their_sequence() -> weft::Result<()> {
    let mut generator = generator()?;
    let fails = |panics: bool| {
        move |choice: Choice| match (choice.index, panics) {
            (2, true) => panic!("token {} broke", choice.index),
            (2, false) => Err("no rule for it".into()),
            _ => Ok(()),
        }
    };
    for (panics, text) in [(false, "no rule for it"), (true, "panicked: token 2 broke")] {
        let failing = generator.add_with(&[1, 2], &limit(4), fails(panics))?;
        let other = generator.add_with(&[7], &limit(4), only_even)?;
        let (tokens, failures) = made(&mut generator, other);
        assert_eq!(tokens.len(), 4);
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].status(), failures[0].sequence()), (Status::User, Some(failing)));
        assert_eq!(failures[0].text(), format!("sequence {failing}: choose returned -11: {text}"));
    }
    let again = generator.add_with(&[1], &limit(4), only_even)?;
    assert_eq!(made(&mut generator, again).0.len(), 4, "the generator goes on");
    Ok(())
}

#[test]
fn a_closure_is_dropped_with_its_sequence() -> weft::Result<()> {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Ordering::SeqCst), "it was dropped before");
        }
    }
    let closure = |fails: bool| {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Flag(dropped.clone());
        let closure = move |_: Choice| {
            let _used = &flag;
            if fails {
                Err("no token".into())
            } else {
                Ok(())
            }
        };
        (closure, move || dropped.load(Ordering::SeqCst))
    };
    let mut generator = generator()?;

    let (refused, dropped) = closure(false);
    generator.add_with(&[], &limit(1), refused).unwrap_err();
    assert!(dropped(), "a sequence that is refused");

    let (ends, dropped) = closure(false);
    generator.add_with(&[1], &limit(2), ends)?;
    generator.poll(None)?;
    assert!(!dropped());
    generator.poll(None)?;
    assert!(dropped(), "a sequence that has ended");

    let (fails, dropped) = closure(true);
    generator.add_with(&[1], &limit(2), fails)?;
    generator.poll(None).unwrap_err();
    assert!(dropped(), "a sequence that has failed");

    let (removed, dropped) = closure(false);
    let sequence = generator.add_with(&[1], &limit(2), removed)?;
    generator.remove(sequence)?;
    assert!(dropped(), "a sequence that was removed");

    let (left, dropped) = closure(false);
    generator.add_with(&[1], &limit(2), left)?;
    generator.poll(None)?;
    let mut run = generator.into_run();
    assert!(dropped(), "a generator that has ended");

    let mut generator = Generator::new(&mut run)?;
    let (left, dropped) = closure(false);
    generator.add_with(&[1], &limit(2), left)?;
    drop(generator);
    assert!(dropped(), "a generator that was dropped");
    Ok(())
}
