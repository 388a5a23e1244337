//! An op of the program, with parameters and a stash, in a pipeline over three processes.
//!
//! low_rank adds a correction to x [n, width]: y = x + h B with h = x A, A [width, rank] and B [rank, width]. h is its stash. With --in-process
//! the ranks are in one process; the output is the same.
use weft::{Backward, Desc, Forward, Init, Mesh, Mode, Model, Op, OpResult, OpShape, Optimizer, Plan, Reads, Run, Tensor, Value};

const IN: usize = 4;
const WIDTH: usize = 16;
const RANK: usize = 2;
const SAMPLES: usize = 32;

fn shape(inputs: &[Desc], params: &[Desc]) -> OpResult<OpShape> {
    let x = &inputs[0];
    match params {
        [a, b] if a.dims[0] == x.dims[1] && b.dims == [a.dims[1], x.dims[1]] => {
            Ok(OpShape { output: x.clone(), stash: Some(Desc::f32([x.dims[0], a.dims[1]])) })
        }
        _ => Err("expected x [n, width], A [width, rank], B [rank, width]".into()),
    }
}

fn forward(mut call: Forward) -> OpResult {
    let (width, rank) = (call.output.desc().dims[1], call.stash.desc().dims[1]);
    let (x, a, b) = (call.inputs[0].as_slice::<f32>()?, call.params[0].as_slice::<f32>()?, call.params[1].as_slice::<f32>()?);
    let (y, h) = (call.output.as_mut_slice::<f32>()?, call.stash.as_mut_slice::<f32>()?);
    for ((x, y), h) in x.chunks(width).zip(y.chunks_mut(width)).zip(h.chunks_mut(rank)) {
        for (k, h) in h.iter_mut().enumerate() {
            *h = x.iter().zip(a[k..].iter().step_by(rank)).fold(0.0, |sum, (x, a)| sum + x * a);
        }
        for (i, y) in y.iter_mut().enumerate() {
            *y = h.iter().zip(b[i..].iter().step_by(width)).fold(x[i], |sum, (h, b)| sum + h * b);
        }
    }
    Ok(())
}

/// The gradient of h[k] for one sample.
fn gradient_of_h(dy: &[f32], b: &[f32], k: usize) -> f32 {
    dy.iter().zip(&b[k * dy.len()..]).fold(0.0, |sum, (dy, b)| sum + dy * b)
}

fn backward(mut call: Backward) -> OpResult {
    let (width, rank) = (call.output.desc().dims[1], call.params[0].desc().dims[1]);
    let (a, b) = (call.params[0].as_slice::<f32>()?, call.params[1].as_slice::<f32>()?);
    let dy = call.grad_output.as_slice::<f32>()?;
    let dx = call.grads[0].as_mut().ok_or("no gradient is required")?.as_mut_slice::<f32>()?;
    for (dx, dy) in dx.chunks_mut(width).zip(dy.chunks(width)) {
        dx.copy_from_slice(dy);
        for k in 0..rank {
            let dh = gradient_of_h(dy, b, k);
            dx.iter_mut().zip(a[k..].iter().step_by(rank)).for_each(|(dx, a)| *dx += dh * a);
        }
    }
    Ok(())
}

fn backward_params(mut call: Backward) -> OpResult {
    let (width, rank) = (call.output.desc().dims[1], call.params[0].desc().dims[1]);
    let (x, h, b) = (call.inputs[0].as_slice::<f32>()?, call.stash.as_slice::<f32>()?, call.params[1].as_slice::<f32>()?);
    let dy = call.grad_output.as_slice::<f32>()?;
    let samples = || x.chunks(width).zip(h.chunks(rank)).zip(dy.chunks(width));
    // They hold zeros, or are not required.
    if let Some(da) = &mut call.grads[0] {
        let da = da.as_mut_slice::<f32>()?;
        for ((x, _), dy) in samples() {
            for k in 0..rank {
                let dh = gradient_of_h(dy, b, k);
                da[k..].iter_mut().step_by(rank).zip(x).for_each(|(da, x)| *da += x * dh);
            }
        }
    }
    if let Some(db) = &mut call.grads[1] {
        let db = db.as_mut_slice::<f32>()?;
        for ((_, h), dy) in samples() {
            for (db, h) in db.chunks_mut(width).zip(h) {
                db.iter_mut().zip(dy).for_each(|(db, dy)| *db += h * dy);
            }
        }
    }
    Ok(())
}

fn add_low_rank(model: &mut Model, name: &str, x: Value) -> weft::Result<Value> {
    let a = model.param(&format!("{name}.a"), [WIDTH, RANK], Init::Normal(0.25))?;
    let b = model.param(&format!("{name}.b"), [RANK, WIDTH], Init::Normal(0.25))?;
    model.node("low_rank").name(name).inputs([x]).params([a, b]).add()
}

fn build() -> weft::Result<Model> {
    let op = Op::new("low_rank", shape, forward).backward(backward).backward_params(backward_params);
    let mut model = Model::new()?;
    // Less memory than with the default, which is everything.
    model.add_op(op.backward_reads([Reads::Params]).backward_params_reads([Reads::Inputs, Reads::Params, Reads::Stash]))?;
    let x = model.input("x", &Desc::f32([1, IN]))?;
    let y = model.input("y", &Desc::f32([1, 1]))?;
    let x = model.linear("in", x, WIDTH)?;
    let x = add_low_rank(&mut model, "first", x)?;
    let x = model.unary("tanh", x)?;
    let x = add_low_rank(&mut model, "second", x)?;
    let x = model.linear("out", x, 1)?;
    model.binary("mse", x, y)?;
    Ok(model)
}

fn main() -> weft::Result<()> {
    let adamw = Optimizer { rate: 0.02, ..Optimizer::default() };
    let config = Plan::builder().ranks(3).micro_batches(4).micro_batch_size(SAMPLES as u32 / 4).optimizer(adamw);
    let mut model = build()?;
    let plan = config.build(&mut model)?;
    let in_process = std::env::args().any(|argument| argument == "--in-process");
    let mesh = if in_process { None } else { Some(Mesh::spawn(&plan)?) };
    let mut run = Run::builder(&plan).mesh(mesh.as_ref()).start()?;

    // The target is the product of the first two numbers.
    let x: Vec<f32> = (0..SAMPLES * IN).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let y: Vec<f32> = x.chunks(IN).map(|x| x[0] * x[1]).collect();
    let batch = [Tensor::from_vec([SAMPLES, IN], x)?, Tensor::from_vec([SAMPLES, 1], y)?];
    for step in 0..=300 {
        let loss = run.step(&batch, Mode::Train)?;
        if step % 100 == 0 {
            println!("step {step:3}  loss {loss:.6}");
        }
    }
    drop(run);
    mesh.map_or(Ok(()), Mesh::wait)
}
