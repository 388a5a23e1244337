//! Fine-tunes adapters of low rank (LoRA) for a model of Hugging Face's Transformers in two processes, and generates text with them.
//!
//!     fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]
//!
//! MODEL is a directory that Transformers wrote, TOKENIZER a file tokenizer.json. SAMPLES is a file NAME.jsonl with lines
//! {"prompt": "...", "completion": "..."}. DIRECTORY gets the checkpoint, and DIRECTORY-adapters/ the adapters, which PEFT loads.
use weft::{
    Checkpoint, Data, Desc, Generator, Mesh, Mode, Optimizer, ParameterGroup, Plan, Preset, Run, SaveOptions, SequenceConfig,
    Specials, StepKind, Tensor, Tokenizer,
};

const STEPS: u64 = 100;
const MICRO_BATCHES: u32 = 4;
const MICRO_BATCH_SIZE: u32 = 4;
const GENERATED: u64 = 3;

fn train(run: &mut Run, data: &Data, preset: &Preset, directory: &str) -> weft::Result<()> {
    let rows = Desc::i32([(MICRO_BATCHES * MICRO_BATCH_SIZE) as usize, preset.seq_len]);
    let (mut tokens, mut targets) = (Tensor::zeros(&rows)?, Tensor::zeros(&rows)?);
    for step in 0..STEPS {
        data.sample(1, step, &mut tokens, &mut targets)?;
        let loss = run.step(&[&tokens, &targets], Mode::Train)?;
        if step % 25 == 24 {
            println!("step {}  loss {loss:.4}", step + 1);
        }
    }
    run.save(directory, &SaveOptions { model: Some(preset.text.clone()), ..SaveOptions::default() })
}

fn answer(run: &mut Run, tokenizer: &Tokenizer, prompt: &str) -> weft::Result<()> {
    let begin = tokenizer.encode(prompt, Specials { add: true, ..Specials::default() })?;
    let mut generator = Generator::new(run)?;
    generator.add(&begin, &SequenceConfig { temperature: 0.0, limit: GENERATED, ..SequenceConfig::default() })?;
    let mut made = Vec::new();
    while let Some(token) = generator.poll(None)? {
        made.push(token.token);
    }
    println!("{prompt}{}", tokenizer.decode(&made, false)?);
    Ok(())
}

fn generate(directory: &str, tokenizer: &Tokenizer) -> weft::Result<()> {
    let mut tuned = Checkpoint::open(directory)?;
    tuned.export(format!("{directory}-adapters/"))?;
    let text = tuned.describe()?.model.expect("train saves the name of the model");
    let mut decoder = Preset::decoder(&text, 1, 0, false)?;
    let plan = Plan::builder().micro_batches(1).build(&mut decoder.model)?;
    let mut run = Run::start(&plan)?;
    run.load_weights(&mut tuned)?;
    answer(&mut run, tokenizer, "abc=")?;
    answer(&mut run, tokenizer, "klm=")
}

fn main() -> weft::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() < 5 {
        eprintln!("usage: fine_tune MODEL TOKENIZER SAMPLES DIRECTORY [--in-process]");
        std::process::exit(2);
    }
    let mut base = Checkpoint::open(&arguments[1])?;
    let text = base.describe()?.model.expect("a directory of Transformers describes its model");
    let mut preset = Preset::new(&format!("{text},lora_rank=8,lora_alpha=16,lora_targets=all-linear"), 0, 2)?;
    let plan = Plan::builder()
        .ranks(2)
        .micro_batches(MICRO_BATCHES)
        .micro_batch_size(MICRO_BATCH_SIZE)
        .step_kinds([StepKind::Train])
        .optimizer(Optimizer { rate: 0.02, ..Optimizer::default() })
        .groups([ParameterGroup::frozen("*"), ParameterGroup::new("*.lora_?.weight")])
        .build(&mut preset.model)?;
    let mesh = if arguments[5..].contains(&"--in-process".into()) { None } else { Some(Mesh::spawn(&plan)?) };
    let tokenizer = Tokenizer::open(&arguments[2])?;
    let data = Data::builder().preset(&preset).path(&arguments[3]).tokenizer(&tokenizer).open()?;
    let mut run = Run::builder(&plan).mesh(mesh.as_ref()).start()?;
    run.load_weights(&mut base)?;
    train(&mut run, &data, &preset, &arguments[4])?;
    drop(run);
    generate(&arguments[4], &tokenizer)?;
    mesh.map_or(Ok(()), Mesh::wait)
}
