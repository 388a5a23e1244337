//! Ops in Rust: parameters and a stash, failures and panics, and when closures are dropped.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use weft::{Backward, Desc, Forward, Init, Mode, Model, Op, OpResult, OpShape, Part, Plan, Reads, Run, Status, Tensor};

/// y = x * factor, with one factor for all elements; the stash is a copy of x.
fn scaled() -> Op {
    Op::new(
        "scaled",
        |inputs, params| match params {
            [factor] if factor.elements() == 1 => Ok(OpShape { output: inputs[0].clone(), stash: Some(inputs[0].clone()) }),
            _ => Err(format!("expected one factor, found {params:?}").into()),
        },
        |mut call: Forward| {
            let (x, factor) = (call.inputs[0].as_slice::<f32>()?, call.params[0].as_slice::<f32>()?[0]);
            call.stash.as_mut_slice::<f32>()?.copy_from_slice(x);
            call.output.as_mut_slice::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor);
            Ok(())
        },
    )
    .backward(|mut call: Backward| {
        let (dy, factor) = (call.grad_output.as_slice::<f32>()?, call.params[0].as_slice::<f32>()?[0]);
        assert!(call.inputs[0].as_slice::<f32>().is_err(), "the op has declared that it does not read its input");
        if let Some(dx) = &mut call.grads[0] {
            dx.as_mut_slice::<f32>()?.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = dy * factor);
        }
        Ok(())
    })
    .backward_params(|mut call: Backward| {
        let (x, dy) = (call.stash.as_slice::<f32>()?, call.grad_output.as_slice::<f32>()?);
        if let Some(grad) = &mut call.grads[0] {
            grad.as_mut_slice::<f32>()?[0] = x.iter().zip(dy).map(|(x, dy)| x * dy).sum();
        }
        Ok(())
    })
    .backward_reads([Reads::Params])
    .backward_params_reads([Reads::Stash])
}

fn model(op: Op) -> weft::Result<Model> {
    let mut model = Model::new()?;
    model.add_op(op)?;
    let x = model.input_with_gradient("x", &Desc::f32([1, 2]))?;
    let y = model.input("y", &Desc::f32([1, 2]))?;
    let factor = model.param("factor", [1], Init::Constant(3.0))?;
    let out = model.node("scaled").inputs([x]).params([factor]).add()?;
    model.binary("mse", out, y)?;
    Ok(model)
}

fn batch() -> weft::Result<[Tensor; 2]> {
    Ok([Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?, Tensor::from_vec([2, 2], vec![0.0f32, 0.0, 0.0, 0.0])?])
}

#[test]
fn an_op_with_a_parameter_and_a_stash_is_trained() -> weft::Result<()> {
    for threads in [0, 2] {
        let plan = Plan::builder().micro_batches(2).micro_batch_size(1).build(&mut model(scaled())?)?;
        let mut run = Run::builder(&plan).threads(threads).start()?;
        // The mean of (3 x)^2 over four elements is 67.5; its derivatives are 45 by the factor, and 4.5 x by x.
        assert_eq!(run.step(&batch()?, Mode::NoUpdate)?, 67.5);
        assert_eq!(run.read("factor", Part::Grad)?.as_slice::<f32>()?, [45.0]);
        assert_eq!(run.read("x", Part::Grad)?.as_slice::<f32>()?, [4.5, 9.0, 13.5, 18.0]);
    }
    Ok(())
}

#[test]
fn a_shape_that_is_refused_names_the_reason() {
    let mut model = Model::new().unwrap();
    model.add_op(scaled()).unwrap();
    let x = model.input("x", &Desc::f32([1, 2])).unwrap();
    let error = model.unary("scaled", x).unwrap_err();
    assert_eq!(error.status(), Status::User);
    assert!(error.text().contains("expected one factor, found []"), "{error}");
}

/// An op whose forward call does `action`, in a run with a thread.
fn failure_of(action: impl Fn() -> OpResult + Send + Sync + 'static) -> weft::Error {
    let shape = |inputs: &[Desc], _: &[Desc]| Ok(OpShape { output: inputs[0].clone(), stash: None });
    let op = Op::new("scaled", shape, move |_| action()).backward(|_| Ok(())).backward_params(|_| Ok(()));
    let mut model = model(op).unwrap();
    let plan = Plan::builder().micro_batches(2).micro_batch_size(1).build(&mut model).unwrap();
    let mut run = Run::builder(&plan).threads(1).start().unwrap();
    run.step(&batch().unwrap(), Mode::Eval).unwrap_err()
}

#[test]
fn a_failure_and_a_panic_end_the_run_with_their_text() {
    let error = failure_of(|| Err("no more scales".into()));
    assert_eq!(error.status(), Status::User);
    assert!(error.text().contains("no more scales"), "{error}");
    let error = failure_of(|| panic!("scale {} broke", 7));
    assert_eq!(error.status(), Status::User);
    assert!(error.text().contains("panicked: scale 7 broke"), "{error}");
    let error = failure_of(|| Err("before\0after".into()));
    assert!(error.text().contains("before\\x00after"), "{error}");
    let error = failure_of(|| Err("ü".repeat(400).into()));
    assert_eq!(error.status(), Status::User, "a long text is cut");
}

#[test]
fn a_panic_of_each_closure_is_a_failure_with_its_text() -> weft::Result<()> {
    let shape = |inputs: &[Desc], _: &[Desc]| Ok(OpShape { output: inputs[0].clone(), stash: None });
    let op = || Op::new("scaled", shape, |_| Ok(()));
    let refused = model(Op::new("scaled", |_, _| panic!("no shape"), |_| Ok(()))).err().expect("a failure");
    assert_eq!(refused.status(), Status::User);
    assert!(refused.text().contains("panicked: no shape"), "{refused}");
    for (broken, text) in [
        (op().backward(|_| panic!("no gradient")).backward_params(|_| Ok(())), "panicked: no gradient"),
        (op().backward(|_| Ok(())).backward_params(|_| panic!("no weights")), "panicked: no weights"),
    ] {
        let plan = Plan::builder().micro_batches(2).micro_batch_size(1).build(&mut model(broken)?)?;
        let mut run = Run::builder(&plan).threads(1).start()?;
        let error = run.step(&batch()?, Mode::Train).unwrap_err();
        assert_eq!(error.status(), Status::User);
        assert!(error.text().contains(text), "{error}");
    }
    Ok(())
}

/// An error and a value of a panic that panic themselves.
#[derive(Debug)]
struct Fragile;

impl std::fmt::Display for Fragile {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no text for it")
    }
}

impl std::error::Error for Fragile {}

struct Explosive;

impl AsRef<[f32]> for Explosive {
    fn as_ref(&self) -> &[f32] {
        &[]
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        std::panic::panic_any(Explosive) // so does the value of this panic
    }
}

#[test]
fn a_panic_while_a_failure_is_reported_ends_the_run() {
    let error = failure_of(|| Err(Fragile.into()));
    assert_eq!(error.status(), Status::User);
    assert!(error.text().contains("panicked: no text for it"), "{error}");
    let error = failure_of(|| std::panic::panic_any(Explosive));
    assert_eq!(error.status(), Status::User);
    assert!(error.text().contains("panicked: no text"), "{error}");
}

#[test]
fn a_panic_when_the_library_drops_an_owner_ends_there() -> weft::Result<()> {
    let (closure, elements) = (Explosive, Explosive);
    let shape = move |inputs: &[Desc], _: &[Desc]| {
        let _used = &closure;
        Ok(OpShape { output: inputs[0].clone(), stash: None })
    };
    drop(model(Op::new("scaled", shape, |_| Ok(())))?);
    drop(Tensor::from_owner::<f32, _>([0], elements)?);
    Ok(())
}

#[test]
fn closures_are_dropped_once_after_the_last_user() -> weft::Result<()> {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let op = |name: &str| {
        let counted = Counted(drops.clone());
        let shape = |inputs: &[Desc], _: &[Desc]| Ok(OpShape { output: inputs[0].clone(), stash: None });
        Op::new(name, shape, move |_| {
            let _used = &counted;
            Ok(())
        })
        .backward(|_| Ok(()))
        .backward_params(|_| Ok(()))
    };
    let mut model = model(op("scaled"))?;
    let plan = Plan::builder().micro_batches(2).micro_batch_size(1).build(&mut model)?;
    drop(model);
    let run = Run::start(&plan)?;
    drop(plan);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(run);
    assert_eq!(drops.load(Ordering::SeqCst), 1);

    Model::new()?.add_op(op("two words")).unwrap_err();
    assert_eq!(drops.load(Ordering::SeqCst), 2, "an op that is refused is dropped");
    Ok(())
}
