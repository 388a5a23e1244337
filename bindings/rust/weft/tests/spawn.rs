//! Ranks as processes: `Mesh::spawn` starts this program again, so it has no test harness.
use std::env::var_os;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use weft::{Desc, Forward, LogLevel, Mesh, Model, Op, OpShape, Plan, Run, Tensor};

const MARK: &str = "WEFT_JOIN";

static SERVES: AtomicBool = AtomicBool::new(false);
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Copies its input. On ranks of copies of the program, it checks their environment and their settings.
fn checked() -> Op {
    Op::new(
        "checked",
        |inputs, _params| Ok(OpShape { output: inputs[0].clone(), stash: None }),
        |mut call: Forward| {
            if let Some(endpoint) = var_os(MARK) {
                return Err(format!("{MARK} is {endpoint:?}").into());
            }
            if SERVES.load(SeqCst) && !LOGGED.load(SeqCst) {
                return Err("the service of the rank has no log".into());
            }
            call.output.as_mut_slice::<f32>()?.copy_from_slice(call.inputs[0].as_slice::<f32>()?);
            Ok(())
        },
    )
}

fn main() -> weft::Result<()> {
    let mut model = Model::new()?;
    model.add_op(checked())?;
    let x = model.input("x", &Desc::f32([1, 1]))?;
    let first = model.unary("checked", x)?;
    let second = model.unary("checked", first)?;
    model.output(second)?;
    let plan = Plan::builder().ranks(2).micro_batches(1).micro_batch_size(2).build(&mut model)?;
    let log = |_: LogLevel, _: &str| LOGGED.store(true, SeqCst);
    let mesh = Mesh::builder().spawn(&plan, |mesh| {
        SERVES.store(true, SeqCst);
        mesh.service().plan(&plan).log(LogLevel::Info, log).serve()
    })?;
    let mut run = Run::builder(&plan).mesh(&mesh).start()?;
    let outputs = run.forward(&[Tensor::from_vec([2, 1], vec![3.0f32, 4.0])?])?;
    assert_eq!(outputs[0].as_slice::<f32>()?, [3.0, 4.0]);
    drop(run);
    mesh.wait()
}
