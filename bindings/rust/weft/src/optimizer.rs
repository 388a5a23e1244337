//! Update rules.
use weft_sys as sys;

use crate::error::initialized;

/// Update rules, as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// AdamW
    AdamW,
    /// Adam
    Adam,
    /// SGD, with momentum if it is not 0
    Sgd,
}

/// The learning rate over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateCurve {
    /// The same at all steps
    Constant,
    /// A half wave of the cosine, from the rate to `min_rate` at step `total`
    Cosine,
    /// A line, from the rate to `min_rate` at step `total`
    Linear,
}

/// An update rule and its settings.
///
/// ```
/// let adamw = weft::Optimizer { rate: 3e-4, weight_decay: 0.1, ..weft::Optimizer::default() };
/// assert_eq!(adamw.beta1, 0.9);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// Default: AdamW.
    pub rule: Rule,
    /// Learning rate. Default: 1e-3.
    pub rate: f64,
    /// Sgd. Default: 0.
    pub momentum: f64,
    /// Adam, AdamW. Default: 0.9.
    pub beta1: f64,
    /// Adam, AdamW. Default: 0.999.
    pub beta2: f64,
    /// Adam, AdamW. Default: 1e-8.
    pub eps: f64,
    /// Of parameters with 2 dimensions or more. Default: 0.
    pub weight_decay: f64,
    /// Parameters with 0 and 1 dimensions decay as well. Default: false.
    pub decay_all: bool,
    /// The maximum global norm of the gradients; 0: no clipping. Default: 1.
    pub clip: f64,
    /// Default: constant.
    pub curve: RateCurve,
    /// Steps of linear warm-up. Default: 0.
    pub warmup: u64,
    /// Cosine, linear: steps until `min_rate`. Default: 0.
    pub total: u64,
    /// Cosine, linear. Default: 0.
    pub min_rate: f64,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        let raw = unsafe { initialized(sys::weft_optimizer_init) };
        Optimizer {
            rule: match raw.rule {
                sys::WEFT_ADAM => Rule::Adam,
                sys::WEFT_SGD => Rule::Sgd,
                _ => Rule::AdamW,
            },
            rate: raw.rate,
            momentum: raw.momentum,
            beta1: raw.beta1,
            beta2: raw.beta2,
            eps: raw.eps,
            weight_decay: raw.weight_decay,
            decay_all: raw.decay_all == 1,
            clip: raw.clip,
            curve: match raw.curve {
                sys::WEFT_RATE_COSINE => RateCurve::Cosine,
                sys::WEFT_RATE_LINEAR => RateCurve::Linear,
                _ => RateCurve::Constant,
            },
            warmup: raw.warmup,
            total: raw.total,
            min_rate: raw.min_rate,
        }
    }
}

impl Optimizer {
    /// Plain SGD with this rate, without clipping.
    pub fn sgd(rate: f64) -> Optimizer {
        Optimizer { rule: Rule::Sgd, rate, clip: 0.0, ..Optimizer::default() }
    }

    pub(crate) fn raw(&self) -> sys::weft_optimizer {
        sys::weft_optimizer {
            rule: match self.rule {
                Rule::AdamW => sys::WEFT_ADAMW,
                Rule::Adam => sys::WEFT_ADAM,
                Rule::Sgd => sys::WEFT_SGD,
            },
            rate: self.rate,
            momentum: self.momentum,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            clip: self.clip,
            curve: match self.curve {
                RateCurve::Constant => sys::WEFT_RATE_CONSTANT,
                RateCurve::Cosine => sys::WEFT_RATE_COSINE,
                RateCurve::Linear => sys::WEFT_RATE_LINEAR,
            },
            decay_all: self.decay_all.into(),
            warmup: self.warmup,
            total: self.total,
            min_rate: self.min_rate,
            ..unsafe { initialized(sys::weft_optimizer_init) }
        }
    }
}
