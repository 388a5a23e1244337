//! The worked example of gpipe.rs and mesh_2d.rs: four layers (linear, ReLU) of width 16 and the mean squared error, with weft and by hand.
pub mod randn;

use ndarray::{Array2, Array3};
use weft::{Desc, Mesh, Mode, Model, Optimizer, Part, Plan, PlanBuilder, Result, Run, Tensor};

use randn::{scientific, Randn};

pub const LAYERS: usize = 4;
pub const MICRO_BATCH_SIZE: usize = 4;
pub const WIDTH: usize = 16;

/// Parameters and data, or their gradients.
pub struct Numbers<T> {
    /// [layer, in, out]
    pub weight: Array3<T>,
    /// [layer, out]
    pub bias: Array2<T>,
    /// [sample, in]
    pub input: Array2<T>,
    pub target: Array2<T>,
    pub loss: f64,
}

impl<T: Clone + Default> Numbers<T> {
    fn zeros(samples: usize) -> Numbers<T> {
        Numbers {
            weight: Array3::default((LAYERS, WIDTH, WIDTH)),
            bias: Array2::default((LAYERS, WIDTH)),
            input: Array2::default((samples, WIDTH)),
            target: Array2::default((samples, WIDTH)),
            loss: 0.0,
        }
    }
}

pub fn draw(samples: usize) -> Numbers<f32> {
    let mut random = Randn::new(42);
    let mut data = Numbers::zeros(samples);
    let numbers = data.weight.iter_mut().chain(&mut data.bias).chain(&mut data.input).chain(&mut data.target);
    numbers.for_each(|number| *number = random.draw() as f32);
    data
}

/// The same computation by hand, in double.
pub fn compute_exact(data: &Numbers<f32>) -> Numbers<f64> {
    let samples = data.input.nrows();
    let (weight, bias) = (data.weight.mapv(f64::from), data.bias.mapv(f64::from));
    let mut exact = Numbers::zeros(samples);
    let mut values = vec![data.input.mapv(f64::from)]; // after each layer
    for layer in 0..LAYERS {
        let sum = values[layer].dot(&weight.index_axis(ndarray::Axis(0), layer)) + bias.row(layer);
        values.push(sum.mapv(|x| x.max(0.0)));
    }
    let off = &values[LAYERS] - &data.target.mapv(f64::from);
    let count = (samples * WIDTH) as f64;
    exact.loss = off.mapv(|x| x * x).sum() / count;
    let mut grad = off * (2.0 / count);
    for layer in (0..LAYERS).rev() {
        grad.zip_mut_with(&values[layer + 1], |grad, value| *grad = if *value > 0.0 { *grad } else { 0.0 });
        exact.bias.row_mut(layer).assign(&grad.sum_axis(ndarray::Axis(0)));
        exact.weight.index_axis_mut(ndarray::Axis(0), layer).assign(&values[layer].t().dot(&grad));
        grad = grad.dot(&weight.index_axis(ndarray::Axis(0), layer).t());
    }
    exact.input = grad;
    exact
}

pub fn build() -> Result<Model> {
    let mut model = Model::new()?;
    let mut x = model.input_with_gradient("x", &Desc::f32([1, WIDTH]))?;
    let target = model.input("target", &Desc::f32([1, WIDTH]))?;
    for layer in 0..LAYERS {
        x = model.linear(&format!("layer{layer}"), x, WIDTH)?;
        x = model.unary("relu", x)?;
    }
    model.binary("mse", x, target)?;
    Ok(model)
}

/// The rest of the configuration. Each stage gets as many layers as the others, or one more.
pub fn plan_of(model: &mut Model, config: PlanBuilder<'_>, micro_batches: u32, stages: usize) -> Result<Plan> {
    let cuts = (1..stages).map(|stage| format!("layer{}", stage * LAYERS / stages));
    let config = config.micro_batches(micro_batches).micro_batch_size(MICRO_BATCH_SIZE as u32);
    config.cuts(cuts).optimizer(Optimizer::sgd(1e-6)).build(model)
}

/// Makes two steps and returns the loss and the gradients of the first, and the digest after the second.
pub fn compute(plan: &Plan, mesh: Option<&Mesh>, data: &Numbers<f32>) -> Result<(Numbers<f32>, String)> {
    let mut run = Run::builder(plan).mesh(mesh).start()?;
    for layer in 0..LAYERS {
        let weight = Tensor::try_from(data.weight.index_axis(ndarray::Axis(0), layer).to_owned())?;
        run.write(&format!("layer{layer}.weight"), Part::Value, &weight)?;
        run.write(&format!("layer{layer}.bias"), Part::Value, &Tensor::try_from(data.bias.row(layer).to_owned())?)?;
    }
    let batch = [Tensor::try_from(data.input.clone())?, Tensor::try_from(data.target.clone())?];
    let mut found = Numbers::zeros(data.input.nrows());
    found.loss = run.step(&batch, Mode::NoUpdate)?;
    for layer in 0..LAYERS {
        let weight = run.read(&format!("layer{layer}.weight"), Part::Grad)?;
        found.weight.index_axis_mut(ndarray::Axis(0), layer).assign(&weight.view::<f32>()?);
        found.bias.row_mut(layer).assign(&run.read(&format!("layer{layer}.bias"), Part::Grad)?.view::<f32>()?);
    }
    found.input.assign(&run.read("x", Part::Grad)?.view::<f32>()?);
    run.step(&batch, Mode::Train)?; // so that the digest depends on every gradient
    Ok((found, run.digest()?))
}

pub fn check(what: &str, found: f64, expected: f64, tolerance: f64) -> bool {
    let good = (found - expected).abs() <= tolerance; // false for NaN
    println!("{what:<26} {found:12.4}   expected {expected:.4} +- {tolerance:.4}   {}", if good { "ok" } else { "WRONG" });
    good
}

fn compare<'a>(what: &str, found: impl IntoIterator<Item = &'a f32>, expected: impl IntoIterator<Item = &'a f64>) -> bool {
    let off = found.into_iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
    let largest = off.fold(0.0, |largest, off| if off > largest || off.is_nan() { off } else { largest });
    let good = largest <= 5e-4;
    println!("{what:<26} {:>12}   expected at most 5e-4   {}", scientific(largest), if good { "ok" } else { "WRONG" });
    good
}

pub fn compare_all(found: &Numbers<f32>, exact: &Numbers<f64>) -> bool {
    println!("largest differences to the same computation in double:");
    let input = compare("  input gradients", &found.input, &exact.input);
    let weight = compare("  weight gradients", &found.weight, &exact.weight);
    let bias = compare("  bias gradients", &found.bias, &exact.bias);
    input && weight && bias
}

/// The value after an option of the command line.
pub fn option<T: std::str::FromStr>(name: &str, default: T) -> T {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    match (arguments.next(), arguments.next()) {
        (None, _) => default,
        (_, Some(value)) => value.parse().unwrap_or_else(|_| usage(&format!("{name} {value}"))),
        (Some(_), None) => usage(name),
    }
}

pub fn flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

pub fn usage(found: &str) -> ! {
    eprintln!("not a valid option: {found}; the first lines of the program describe the options");
    std::process::exit(2)
}
