//! A small model that most tests train.
#![allow(dead_code)] // each test program uses a part
use std::sync::mpsc;
use std::thread;

use weft::{Desc, Event, Mesh, Model, Plan, PlanBuilder, Result, Run, Tensor};

/// Two layers from 1 to 1 with the loss "mse" and the output "out".
pub fn model() -> Result<Model> {
    let mut model = Model::new()?;
    let x = model.input_with_gradient("x", &Desc::f32([1, 1]))?;
    let y = model.input("y", &Desc::f32([1, 1]))?;
    let hidden = model.linear("hidden", x, 8)?;
    let hidden = model.unary("gelu", hidden)?;
    let out = model.linear("out", hidden, 1)?;
    model.output(out)?;
    model.binary("mse", out, y)?;
    Ok(model)
}

pub fn small() -> PlanBuilder<'static> {
    Plan::builder().micro_batches(2).micro_batch_size(2)
}

pub fn batch() -> Result<[Tensor; 2]> {
    Ok([Tensor::from_vec([4, 1], vec![0.0f32, 1.0, 2.0, 3.0])?, Tensor::from_vec([4, 1], vec![1.0f32, 0.5, 0.0, -0.5])?])
}

/// A run of two ranks that has started, and whose rank 1 has left it.
pub fn run_whose_rank_left() -> Result<Run> {
    let plan = small().ranks(2).build(&mut model()?)?;
    let mesh = Mesh::builder().listen()?;
    let endpoint = mesh.join_endpoint();
    let (started, until_started) = mpsc::channel();
    let other = thread::spawn(move || {
        let mut mesh = Mesh::builder().endpoint(&endpoint).join()?;
        let mut service = mesh.service().begin()?;
        while !matches!(service.poll(None)?, Some(Event::Started { .. })) {}
        until_started.recv().expect("rank 0 has started too");
        Ok::<_, weft::Error>(()) // the rank leaves
    });
    let run = Run::builder(&plan).mesh(&mesh).start()?;
    started.send(()).unwrap();
    other.join().unwrap()?;
    Ok(run)
}
