//! Ops of the program.
use std::error::Error as StdError;
use std::os::raw::c_void;

use weft_sys as sys;

use crate::error::{attempt, c_string, initialized, Result};
use crate::model::Model;
use crate::panic::contain;
use crate::tensor::{slice, Desc};
use crate::view::{View, ViewMut};

/// The result of a closure of an op or of a sequence. The text of a failure is in the error of the run or of the sequence.
pub type OpResult<T = ()> = std::result::Result<T, Box<dyn StdError>>;

/// The shapes of the results of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpShape {
    /// The output. Dimension 0 is the samples; the other dimensions do not depend on them.
    pub output: Desc,
    /// What the gradients read beside the operands. It follows the rule of the output, or does not depend on the samples at all.
    pub stash: Option<Desc>,
}

/// The operands of a forward call.
pub struct Forward<'a> {
    /// In port order.
    pub inputs: &'a [View],
    /// The parameters of the node.
    pub params: &'a [View],
    /// To be written.
    pub output: ViewMut<'a>,
    /// To be written, if the op has a stash.
    pub stash: ViewMut<'a>,
    /// Whether the step has a backward pass.
    pub training: bool,
    /// For random numbers: of the node, the micro-batch and the updates before the step, so the same in its gradients.
    pub seed: u64,
}

/// The operands of a gradient.
pub struct Backward<'a> {
    /// In port order.
    pub inputs: &'a [View],
    /// The parameters of the node.
    pub params: &'a [View],
    /// The output of the forward call.
    pub output: &'a View,
    /// The stash of the forward call. It has no shape if the gradient does not read it.
    pub stash: &'a View,
    /// The gradient of the output.
    pub grad_output: &'a View,
    /// The gradients to be written, or to be added to, of inputs or of parameters. They hold zeros. `None`: not required in this call.
    pub grads: Vec<Option<ViewMut<'a>>>,
    /// That of the forward call.
    pub seed: u64,
}

/// Tensors that a gradient reads beside the gradient of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The inputs.
    Inputs,
    /// The parameters.
    Params,
    /// The output.
    Output,
    /// The stash.
    Stash,
}

type Shape = dyn Fn(&[Desc], &[Desc]) -> OpResult<OpShape> + Send + Sync;
type ForwardCall = dyn Fn(Forward<'_>) -> OpResult + Send + Sync;
type BackwardCall = dyn Fn(Backward<'_>) -> OpResult + Send + Sync;

/// What the library passes to the callbacks.
struct Closures {
    shape: Box<Shape>,
    forward: Box<ForwardCall>,
    backward: Option<Box<BackwardCall>>,
    backward_params: Option<Box<BackwardCall>>,
}

/// An op of the program, with 1 to 16 inputs, up to 16 parameters and one output.
///
/// The closures run on compute threads, several at the same time. Each call must be a pure function of its argument. A closure that returns a
/// failure or panics fails the call or the run with [`Status::User`](crate::Status::User).
///
/// ```
/// use weft::{Backward, Desc, Forward, Mode, Model, Op, OpShape, Plan, Run, Tensor};
///
/// let square = Op::new(
///     "square",
///     |inputs, _params| Ok(OpShape { output: inputs[0].clone(), stash: None }),
///     |mut call: Forward| {
///         let x = call.inputs[0].as_slice::<f32>()?;
///         call.output.as_mut_slice::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
///         Ok(())
///     },
/// )
/// .backward(|mut call: Backward| {
///     let (x, dy) = (call.inputs[0].as_slice::<f32>()?, call.grad_output.as_slice::<f32>()?);
///     if let Some(grad) = &mut call.grads[0] {
///         grad.as_mut_slice::<f32>()?.iter_mut().zip(x.iter().zip(dy)).for_each(|(dx, (x, dy))| *dx = 2.0 * x * dy);
///     }
///     Ok(())
/// });
///
/// let mut model = Model::new()?;
/// model.add_op(square)?;
/// let x = model.input("x", &Desc::f32([1, 2]))?;
/// let y = model.unary("square", x)?;
/// model.binary("mse", y, x)?;
/// let plan = Plan::builder().micro_batches(1).micro_batch_size(1).build(&mut model)?;
/// let loss = Run::start(&plan)?.step(&[Tensor::from_vec([1, 2], vec![2.0f32, 3.0])?], Mode::Eval)?;
/// assert_eq!(loss, ((4.0 - 2.0f64).powi(2) + (9.0 - 3.0f64).powi(2)) / 2.0);
/// # Ok::<(), weft::Error>(())
/// ```
#[must_use = "`Model::add_op` adds it to a model"]
pub struct Op {
    raw: sys::weft_op,
    name: String,
    closures: Closures,
}

impl Op {
    /// `shape` computes the shapes of the results, or fails if the op does not accept these inputs and parameters. `forward` writes the output
    /// and the stash.
    pub fn new(
        name: &str,
        shape: impl Fn(&[Desc], &[Desc]) -> OpResult<OpShape> + Send + Sync + 'static,
        forward: impl Fn(Forward<'_>) -> OpResult + Send + Sync + 'static,
    ) -> Op {
        let closures = Closures { shape: Box::new(shape), forward: Box::new(forward), backward: None, backward_params: None };
        let mut raw = unsafe { initialized(sys::weft_op_init) };
        raw.shape = Some(call_shape);
        raw.forward = Some(call_forward);
        raw.destroy = Some(destroy);
        Op { raw, name: name.to_string(), closures }
    }

    /// A part of the hash of the plan, with the name. Default: 1.
    pub fn version(mut self, version: u32) -> Op {
        self.raw.version = version;
        self
    }

    /// The gradients of the inputs. Without them, nothing below the op is trained.
    pub fn backward(mut self, backward: impl Fn(Backward<'_>) -> OpResult + Send + Sync + 'static) -> Op {
        self.raw.backward = Some(call_backward);
        self.closures.backward = Some(Box::new(backward));
        self
    }

    /// The gradients of the parameters, for one micro-batch. Without them, the op can have no parameters that are trained.
    pub fn backward_params(mut self, backward: impl Fn(Backward<'_>) -> OpResult + Send + Sync + 'static) -> Op {
        self.raw.backward_params = Some(call_backward_params);
        self.closures.backward_params = Some(Box::new(backward));
        self
    }

    /// What `backward` reads; the memory of other tensors is free earlier. Default: everything.
    pub fn backward_reads(mut self, reads: impl AsRef<[Reads]>) -> Op {
        self.raw.backward_reads = mask(reads.as_ref());
        self
    }

    /// The same for `backward_params`.
    pub fn backward_params_reads(mut self, reads: impl AsRef<[Reads]>) -> Op {
        self.raw.backward_params_reads = mask(reads.as_ref());
        self
    }
}

fn mask(reads: &[Reads]) -> u32 {
    reads.iter().fold(0, |mask, tensor| {
        mask | match tensor {
            Reads::Inputs => sys::WEFT_OP_READS_INPUTS,
            Reads::Params => sys::WEFT_OP_READS_PARAMS,
            Reads::Output => sys::WEFT_OP_READS_OUTPUT,
            Reads::Stash => sys::WEFT_OP_READS_STASH,
        }
    })
}

impl Model {
    /// Registers an op under its name for this model. Nodes are then added as those of built-in ops.
    pub fn add_op(&mut self, op: Op) -> Result<()> {
        let name = c_string(&op.name)?;
        let mut raw = op.raw;
        raw.name = name.as_ptr();
        let payload = Box::into_raw(Box::new(op.closures));
        let added = attempt(|err| unsafe { sys::weft_model_add_op(self.raw(), &raw, payload.cast(), err) });
        if added.is_err() {
            drop(unsafe { Box::from_raw(payload) }); // `destroy` is not called
        }
        added.map(drop)
    }
}

unsafe extern "C" fn destroy(payload: *mut c_void) {
    let _ = contain(|| drop(Box::from_raw(payload as *mut Closures)));
}

unsafe extern "C" fn call_shape(call: *mut sys::weft_op_call) -> i32 {
    answer((*call).err, || {
        let shapes = |views, count| View::of(views, count).iter().map(View::desc).collect::<Vec<_>>();
        let (inputs, params) = (shapes((*call).inputs, (*call).n_inputs), shapes((*call).params, (*call).n_params));
        let shape = ((*((*call).payload as *const Closures)).shape)(&inputs, &params)?;
        (*call).output.desc = shape.output.raw()?;
        if let Some(stash) = shape.stash {
            (*call).stash.desc = stash.raw()?;
        }
        Ok(())
    })
}

unsafe extern "C" fn call_forward(call: *const sys::weft_op_call) -> i32 {
    let call = &*call;
    answer(call.err, || {
        ((*(call.payload as *const Closures)).forward)(Forward {
            inputs: View::of(call.inputs, call.n_inputs),
            params: View::of(call.params, call.n_params),
            output: ViewMut::of(&call.output),
            stash: ViewMut::of(&call.stash),
            training: call.training != 0,
            seed: call.seed,
        })
    })
}

unsafe extern "C" fn call_backward(call: *const sys::weft_op_call) -> i32 {
    let closures = &*((*call).payload as *const Closures);
    gradient(&*call, &closures.backward, ViewMut::all((*call).grad_inputs, (*call).n_inputs))
}

unsafe extern "C" fn call_backward_params(call: *const sys::weft_op_call) -> i32 {
    let closures = &*((*call).payload as *const Closures);
    gradient(&*call, &closures.backward_params, ViewMut::all((*call).grad_params, (*call).n_params))
}

unsafe fn gradient<'a>(call: &'a sys::weft_op_call, closure: &Option<Box<BackwardCall>>, grads: Vec<Option<ViewMut<'a>>>) -> i32 {
    answer(call.err, || {
        let closure = closure.as_ref().ok_or("the op has no such gradient")?;
        closure(Backward {
            inputs: View::of(call.inputs, call.n_inputs),
            params: View::of(call.params, call.n_params),
            output: &View::of(&call.output, 1)[0],
            stash: &View::of(&call.stash, 1)[0],
            grad_output: &View::of(&call.grad_output, 1)[0],
            grads,
            seed: call.seed,
        })
    })
}

/// Calls a closure. A failure or a panic becomes a status and a text.
pub(crate) unsafe fn answer(err: *mut sys::weft_error, call: impl FnOnce() -> OpResult) -> i32 {
    // The text of a failure is also made by the program.
    let text = match contain(|| call().map_err(|error| error.to_string())) {
        Ok(Ok(())) => return 0,
        Ok(Err(text)) => text,
        Err(text) => format!("panicked: {text}"),
    };
    write_text(err, &text);
    sys::WEFT_EUSER
}

unsafe fn write_text(err: *mut sys::weft_error, text: &str) {
    if err.is_null() {
        return;
    }
    let text = text.replace('\0', "\\x00"); // a NUL would end it
    let most = (*err).text.len() - 1;
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = slice(text.as_ptr().cast(), end);
    (&mut (*err).text)[..end].copy_from_slice(bytes);
    (&mut (*err).text)[end] = 0;
}
