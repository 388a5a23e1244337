//! Forward passes through a pipeline, checked against plain loops.
//!
//! Four layers (linear without bias, ReLU) of width 16 are in as many stages. The batch has 8 micro-batches of 4 samples; the outputs are returned
//! one micro-batch at a time, each with its own event. Every stage is a separate process, except with --in-process.
#[path = "chain/randn.rs"]
mod randn;

use ndarray::{s, Array2};
use weft::{Desc, Event, Init, Mesh, Mode, Model, Part, Plan, Run, Tensor};

const LAYERS: usize = 4;
const MICRO_BATCHES: usize = 8;
const MICRO_BATCH_SIZE: usize = 4;
const SAMPLES: usize = MICRO_BATCHES * MICRO_BATCH_SIZE;
const WIDTH: usize = 16;

fn build() -> weft::Result<Model> {
    let mut model = Model::new()?;
    let mut x = model.input("x", &Desc::f32([1, WIDTH]))?;
    for layer in 0..LAYERS {
        let weight = model.param(&format!("weight{layer}"), [WIDTH, WIDTH], Init::Zeros)?;
        x = model.node("linear").inputs([x]).params([weight]).add()?;
        x = model.unary("relu", x)?;
    }
    model.output(x)?;
    Ok(model)
}

/// In float, as in weft, but the order of the sums differs.
fn compute_plainly(weights: &[Array2<f32>], input: &Array2<f32>) -> Array2<f32> {
    let mut rows = input.clone();
    for mut row in rows.rows_mut() {
        for weight in weights {
            let sums = weight.columns().into_iter().map(|column| row.iter().zip(column).fold(0.0, |sum, (x, w)| sum + x * w));
            let sums: Vec<f32> = sums.collect();
            row.iter_mut().zip(sums).for_each(|(x, sum)| *x = if sum > 0.0 { sum } else { 0.0 });
        }
    }
    rows
}

fn main() -> weft::Result<()> {
    let plan = Plan::builder().ranks(LAYERS as u32).micro_batches(MICRO_BATCHES as u32).micro_batch_size(MICRO_BATCH_SIZE as u32);
    let plan = plan.build(&mut build()?)?;
    let in_process = std::env::args().any(|argument| argument == "--in-process");
    let mesh = if in_process { None } else { Some(Mesh::spawn(&plan)?) };

    let mut random = randn::Randn::new(42);
    let mut draw = |rows| Array2::from_shape_simple_fn((rows, WIDTH), || random.draw() as f32);
    let weights: Vec<_> = (0..LAYERS).map(|_| draw(WIDTH)).collect();
    let input = draw(SAMPLES);
    let expected = compute_plainly(&weights, &input);

    let mut run = Run::builder(&plan).mesh(mesh.as_ref()).start()?;
    for (layer, weight) in weights.into_iter().enumerate() {
        run.write(&format!("weight{layer}"), Part::Value, &Tensor::try_from(weight)?)?;
    }
    run.submit(&[Tensor::try_from(input)?], Mode::Forward, 0)?;
    let mut found = Array2::<f32>::zeros((SAMPLES, WIDTH));
    while let Some(event) = run.poll(None)? {
        match event {
            // A view of the output, which is valid until the next poll.
            Event::MicroBatch { micro_batch, outputs, .. } => {
                let first = micro_batch as usize * MICRO_BATCH_SIZE;
                found.slice_mut(s![first..first + MICRO_BATCH_SIZE, ..]).assign(&outputs.view::<f32>(0)?);
            }
            Event::Failed { error, .. } => return Err(error),
            _ => {}
        }
    }
    drop(run);

    let low = found.iter().copied().fold(f32::INFINITY, f32::min);
    let high = f64::from(found.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let off = found.iter().zip(&expected).map(|(found, expected)| (f64::from(*found) - f64::from(*expected)).abs());
    let off = off.fold(0.0, |largest, off| if off > largest || off.is_nan() { off } else { largest });
    let good = low == 0.0 && (high - 417.7554).abs() <= 1e-4 && off <= 1e-4;
    println!("outputs from {low:.4} to {high:.4}, expected 0 to 417.7554");
    println!("largest difference to plain loops {}, expected at most 1e-4", randn::scientific(off));
    println!("{}", if good { "ok" } else { "WRONG" });
    if let Some(mesh) = mesh {
        mesh.wait()?;
    }
    std::process::exit(i32::from(!good))
}
