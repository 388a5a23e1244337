//! Trains a small network in two pipeline stages to approximate a sine.
use weft::{Desc, Mode, Model, Optimizer, Plan, RateCurve, Run, Tensor};

fn main() -> weft::Result<()> {
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 10.0 - 3.2).collect();
    let y: Vec<f32> = x.iter().map(|x| x.sin()).collect();
    let batch = [Tensor::from_vec([64, 1], x)?, Tensor::from_vec([64, 1], y)?];

    let mut model = Model::new()?;
    let x = model.input("x", &Desc::f32([1, 1]))?;
    let y = model.input("y", &Desc::f32([1, 1]))?;
    let hidden = model.linear("hidden", x, 32)?;
    let hidden = model.unary("gelu", hidden)?;
    let out = model.linear("out", hidden, 1)?;
    model.binary("mse", out, y)?;

    let adamw = Optimizer { rate: 0.02, curve: RateCurve::Cosine, total: 500, clip: 0.0, ..Optimizer::default() };
    let plan = Plan::builder().ranks(2).micro_batches(4).micro_batch_size(16).optimizer(adamw).build(&mut model)?;
    let mut run = Run::start(&plan)?;
    for step in 0..=500 {
        let loss = run.step(&batch, Mode::Train)?;
        if step % 100 == 0 {
            println!("step {step:3}  loss {loss:.6}");
        }
    }
    Ok(())
}
