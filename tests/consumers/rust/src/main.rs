//! The README's program in Rust: trains a small network in two pipeline stages to approximate a sine. The declarations are written by hand.
//! A struct with a size may end after the last field that the program uses. The other fields have their defaults, or are not written.
use std::ffi::{c_char, c_void, CStr};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

#[repr(C)] struct Error { size: u32, status: i32, text: [c_char; 504] }
#[repr(C)] struct Desc { dtype: u32, n_dims: u32, dims: [i64; 8] }
#[repr(C)] #[derive(Clone, Copy)] struct Value { id: u32 }
#[repr(C)] struct NodeConfig { size: u32, flags: u32, name: *const c_char, op: *const c_char, inputs: *const Value,
    params: *const c_void, n_inputs: u32, n_params: u32 }
#[repr(C)] struct Optimizer { size: u32, rule: u32, rate: f64, momentum: f64, beta1: f64, beta2: f64, eps: f64, weight_decay: f64,
    clip: f64, curve: u32, decay_all: u32, warmup: u64, total: u64 }
#[repr(C)] struct PlanConfig { size: u32, ranks: u32, micro_batches: u32, micro_batch_size: u32, short_size: u32, split: u32,
    schedule: *const c_char, cuts: *const *const c_char, n_cuts: u32, step_kinds: u32, seed: u64, optimizer: *const Optimizer }
#[repr(C)] struct Event { size: u32, kind: u32, tag: u64, status: i32, micro_batch: u32, step: u64, loss: f64, grad_norm: f64,
    outputs: *const *mut c_void, n_outputs: u32, rank: i32, text: *const c_char }
type Handle = *mut c_void;
type Release = Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>;

extern "C" {
    fn weft_tensor_wrap(desc: *const Desc, data: *mut f32, release: Release, payload: *mut c_void, out: *mut Handle, err: *mut Error) -> i32;
    fn weft_tensor_unref(tensor: Handle);
    fn weft_model_new(out: *mut Handle, err: *mut Error) -> i32;
    fn weft_model_free(model: Handle);
    fn weft_model_add_input(model: Handle, name: *const c_char, sample: *const Desc, flags: u32, out: *mut Value, err: *mut Error) -> i32;
    fn weft_model_add_linear(model: Handle, name: *const c_char, x: Value, features: i64, out: *mut Value, err: *mut Error) -> i32;
    fn weft_model_add_node(model: Handle, config: *const NodeConfig, out: *mut Value, err: *mut Error) -> i32;
    fn weft_optimizer_init(optimizer: *mut Optimizer, size: usize);
    fn weft_plan_config_init(config: *mut PlanConfig, size: usize);
    fn weft_plan_new(model: Handle, config: *const PlanConfig, out: *mut Handle, err: *mut Error) -> i32;
    fn weft_plan_free(plan: Handle);
    fn weft_run_start(plan: Handle, mesh: Handle, config: *const c_void, out: *mut Handle, err: *mut Error) -> i32;
    fn weft_run_free(run: Handle);
    fn weft_run_submit(run: Handle, inputs: *const Handle, n_inputs: u32, mode: u32, tag: u64, err: *mut Error) -> i32;
    fn weft_run_poll(run: Handle, event: *mut Event, timeout_ns: i64) -> i32;
}

const F32: u32 = 1;
const COSINE: u32 = 2;
const TRAIN: u32 = 1;
const DONE: u32 = 2;
const ERROR: u32 = 3;

/// Calls a function of weft with an error as its last argument; a failure becomes its text.
fn attempt(call: impl FnOnce(*mut Error) -> i32) -> Result<(), String> {
    let mut err = Error { size: bytes::<Error>(), status: 0, text: [0; 504] };
    if call(&mut err) >= 0 { Ok(()) } else { Err(unsafe { text_of(err.text.as_ptr()) }) }
}

unsafe fn text_of(text: *const c_char) -> String { CStr::from_ptr(text).to_string_lossy().into_owned() }
fn name(text: &'static [u8]) -> *const c_char { CStr::from_bytes_with_nul(text).unwrap().as_ptr() }
fn bytes<T>() -> u32 { size_of::<T>() as u32 }
fn desc(rows: i64) -> Desc { Desc { dtype: F32, n_dims: 2, dims: [rows, 1, 0, 0, 0, 0, 0, 0] } }

unsafe fn node(model: Handle, op: &'static [u8], v: &mut [Value; 2], n_inputs: u32) -> Result<(), String> {
    let config = NodeConfig { size: bytes::<NodeConfig>(), op: name(op), inputs: v.as_ptr(), n_inputs, ..zeroed() };
    attempt(|err| weft_model_add_node(model, &config, &mut v[0], err))
}

unsafe fn train() -> Result<(), String> {
    let mut x: Vec<f32> = (0..64).map(|i| i as f32 / 10.0 - 3.2).collect();
    let mut y: Vec<f32> = x.iter().map(|x| x.sin()).collect();
    let mut batch = [null_mut(); 2];
    attempt(|err| weft_tensor_wrap(&desc(64), x.as_mut_ptr(), None, null_mut(), &mut batch[0], err))?;
    attempt(|err| weft_tensor_wrap(&desc(64), y.as_mut_ptr(), None, null_mut(), &mut batch[1], err))?;

    let (mut model, mut plan, mut run) = (null_mut(), null_mut(), null_mut());
    let mut v = [Value { id: 0 }; 2]; // the current value and the target
    attempt(|err| weft_model_new(&mut model, err))?;
    attempt(|err| weft_model_add_input(model, name(b"x\0"), &desc(1), 0, &mut v[0], err))?;
    attempt(|err| weft_model_add_input(model, name(b"y\0"), &desc(1), 0, &mut v[1], err))?;
    attempt(|err| weft_model_add_linear(model, name(b"hidden\0"), v[0], 32, &mut v[0], err))?;
    node(model, b"gelu\0", &mut v, 1)?;
    attempt(|err| weft_model_add_linear(model, name(b"out\0"), v[0], 1, &mut v[0], err))?;
    node(model, b"mse\0", &mut v, 2)?;

    let mut adamw: Optimizer = zeroed();
    weft_optimizer_init(&mut adamw, size_of::<Optimizer>());
    adamw = Optimizer { rate: 0.02, curve: COSINE, total: 500, clip: 0.0, ..adamw };
    let mut config: PlanConfig = zeroed();
    weft_plan_config_init(&mut config, size_of::<PlanConfig>());
    config = PlanConfig { ranks: 2, micro_batches: 4, micro_batch_size: 16, optimizer: &adamw, ..config };
    attempt(|err| weft_plan_new(model, &config, &mut plan, err))?;
    attempt(|err| weft_run_start(plan, null_mut(), null(), &mut run, err))?;
    let mut event = Event { size: bytes::<Event>(), ..zeroed() };
    for step in 0..=500 {
        attempt(|err| weft_run_submit(run, batch.as_ptr(), 2, TRAIN, 0, err))?;
        event.kind = 0;
        while event.kind != DONE { // events of other kinds report parts of the step
            if weft_run_poll(run, &mut event, -1) <= 0 { return Err("the step has no final event".into()); }
            if event.kind == ERROR { return Err(text_of(event.text)); }
        }
        if step % 100 == 0 { println!("step {:3}  loss {:.6}", step, event.loss); }
    }
    weft_run_free(run);
    weft_plan_free(plan);
    weft_model_free(model);
    Ok(batch.iter().for_each(|tensor| weft_tensor_unref(*tensor)))
}

fn main() {
    if let Err(text) = unsafe { train() } {
        eprintln!("embed: {text}");
        std::process::exit(1);
    }
}
