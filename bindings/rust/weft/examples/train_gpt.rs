//! Trains a small GPT on a file in two processes, saves it, and generates text from the checkpoint.
//!
//!     train_gpt FILE DIRECTORY [--in-process]
//!
//! Each byte of FILE is a token. DIRECTORY gets the checkpoint and may not contain a newer one.
use weft::{Checkpoint, Data, Desc, Mesh, Mode, Plan, Preset, Run, SaveOptions, StepKind, Tensor};

const STEPS: u64 = 40;
const MICRO_BATCHES: u32 = 4;
const MICRO_BATCH_SIZE: u32 = 4;
const WINDOW: usize = 64;
const GENERATED: usize = 60;

fn train(plan: &Plan, mesh: Option<&Mesh>, preset: &Preset, path: &str, directory: &str) -> weft::Result<()> {
    let data = Data::builder().preset(preset).path(path).open()?;
    let windows = Desc::i32([(MICRO_BATCHES * MICRO_BATCH_SIZE) as usize, WINDOW]);
    let (mut tokens, mut targets) = (Tensor::zeros(&windows)?, Tensor::zeros(&windows)?);
    let mut run = Run::builder(plan).mesh(mesh).start()?;
    for step in 0..STEPS {
        data.sample(1, step, &mut tokens, &mut targets)?;
        let loss = run.step(&[&tokens, &targets], Mode::Train)?;
        if step % 10 == 9 {
            println!("step {}  loss {loss:.4}", step + 1);
        }
    }
    run.save(directory, &SaveOptions { model: Some(preset.text.clone()), ..SaveOptions::default() })
}

/// The most likely token after the first `seen` ones.
fn next_token(run: &mut Run, tokens: &Tensor, vocabulary: usize, seen: usize) -> weft::Result<i32> {
    let outputs = run.forward(&[Some(tokens), None])?; // outputs do not need targets
    let logits = &outputs[0].as_slice::<f32>()?[(seen - 1) * vocabulary..seen * vocabulary];
    let best = (1..vocabulary).fold(0, |best, token| if logits[token] > logits[best] { token } else { best });
    Ok(best as i32)
}

fn generate(directory: &str) -> weft::Result<()> {
    let mut checkpoint = Checkpoint::open(directory)?;
    let text = checkpoint.describe()?.model.expect("train saves the name of the model");
    let mut preset = Preset::new(&text, WINDOW, 1)?;
    let plan = Plan::builder().micro_batches(1).micro_batch_size(1).step_kinds([StepKind::Forward]).build(&mut preset.model)?;
    let mut run = Run::start(&plan)?;
    run.load_weights(&mut checkpoint)?;
    let mut tokens = Tensor::zeros(&Desc::i32([1, WINDOW]))?;
    tokens.as_mut_slice::<i32>()?[0] = b'T'.into();
    for seen in 1..=GENERATED {
        tokens.as_mut_slice::<i32>()?[seen] = next_token(&mut run, &tokens, preset.vocabulary, seen)?;
    }
    let text: Vec<u8> = tokens.as_slice::<i32>()?[..=GENERATED].iter().map(|token| *token as u8).collect();
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

fn main() -> weft::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() < 3 {
        eprintln!("usage: train_gpt FILE DIRECTORY [--in-process]");
        std::process::exit(2);
    }
    let mut preset = Preset::new("gpt-nano", WINDOW, 2)?;
    let config = Plan::builder().ranks(2).micro_batches(MICRO_BATCHES).micro_batch_size(MICRO_BATCH_SIZE);
    let plan = config.step_kinds([StepKind::Train]).build(&mut preset.model)?;
    let mesh = if arguments[3..].contains(&"--in-process".into()) { None } else { Some(Mesh::spawn(&plan)?) };
    train(&plan, mesh.as_ref(), &preset, &arguments[1], &arguments[2])?;
    generate(&arguments[2])?;
    mesh.map_or(Ok(()), Mesh::wait)
}
