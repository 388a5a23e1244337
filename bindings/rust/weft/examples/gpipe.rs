//! The worked example of pipeline parallelism, checked number by number.
//!
//! Four layers (linear, ReLU) of width 16 and the mean squared error are cut into 1 to 4 stages; 8 micro-batches of 4 samples run through them.
//! The program also computes the same loss and gradients itself, layer after layer, in double, and fails if weft's differ by more than rounding.
//! The output after the first line is the same for any number of stages and any schedule.
//!
//!     gpipe [--stages N] [--schedule gpipe|1f1b] [--in-process]
//!
//! Every stage is a separate process, except with --in-process.
mod chain;

use chain::{check, flag, option, LAYERS, MICRO_BATCH_SIZE};
use weft::{Mesh, Plan};

const MICRO_BATCHES: usize = 8;

fn main() -> weft::Result<()> {
    let stages: usize = option("--stages", LAYERS);
    let schedule: String = option("--schedule", "gpipe".into());
    let mut model = chain::build()?;
    let config = Plan::builder().ranks(stages as u32).schedule(&schedule);
    let plan = chain::plan_of(&mut model, config, MICRO_BATCHES as u32, stages)?;
    let mesh = if flag("--in-process") { None } else { Some(Mesh::spawn(&plan)?) };

    let data = chain::draw(MICRO_BATCHES * MICRO_BATCH_SIZE);
    let exact = chain::compute_exact(&data);
    let (found, digest) = chain::compute(&plan, mesh.as_ref(), &data)?;

    let plural = if stages == 1 { "" } else { "s" };
    println!("{stages} stage{plural}, schedule {schedule}, {MICRO_BATCHES} micro-batches of {MICRO_BATCH_SIZE} samples");
    let (low, high) = found.weight.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let mut good = check("loss", found.loss, 5540.2947, 0.001);
    good &= check("smallest weight gradient", low.into(), -294.8231, 0.0003);
    good &= check("largest weight gradient", high.into(), 1527.5932, 0.0003);
    good &= chain::compare_all(&found, &exact);
    println!("parameters after one step of SGD: {digest}");
    if let Some(mesh) = mesh {
        mesh.wait()?;
    }
    std::process::exit(i32::from(!good))
}
