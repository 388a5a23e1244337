//! A pipeline with replicas, checked number by number: the model of gpipe.rs on a mesh of data x stage.
//!
//! The 4 micro-batches of a step are divided among the replicas; each replica is a separate pipeline. Their gradients are added in two groups, for
//! any number of replicas, so the output after the first line is the same for one replica and for two, for any number of stages and any schedule.
//!
//!     mesh_2d [--data 1|2] [--stages 1..4] [--schedule gpipe|1f1b] [--in-process]
//!
//! Every rank is a separate process, except with --in-process.
mod chain;

use chain::{check, flag, option, LAYERS, MICRO_BATCH_SIZE};
use weft::{Mesh, Plan};

const MICRO_BATCHES: usize = 4;

fn main() -> weft::Result<()> {
    let replicas: u32 = option("--data", 2);
    let stages: usize = option("--stages", LAYERS);
    let schedule: String = option("--schedule", "1f1b".into());
    let mut model = chain::build()?;
    let config = Plan::builder().axis("data", replicas).axis("stage", stages as u32).gradient_groups(2).schedule(&schedule);
    let plan = chain::plan_of(&mut model, config, MICRO_BATCHES as u32, stages)?;
    let mesh = if flag("--in-process") { None } else { Some(Mesh::spawn(&plan)?) };

    let data = chain::draw(MICRO_BATCHES * MICRO_BATCH_SIZE);
    let exact = chain::compute_exact(&data);
    let (found, digest) = chain::compute(&plan, mesh.as_ref(), &data)?;

    println!("data={replicas} x stage={stages}, schedule {schedule}, {MICRO_BATCHES} micro-batches of {MICRO_BATCH_SIZE} samples");
    let mut good = check("loss", found.loss, 3828.785, 0.001);
    good &= chain::compare_all(&found, &exact);
    println!("parameters after one step of SGD: {digest}");
    if let Some(mesh) = mesh {
        mesh.wait()?;
    }
    std::process::exit(i32::from(!good))
}
