//! Nodes with any op and settings.
use std::ffi::CString;

use weft_sys as sys;

use crate::error::{array, c_string, initialized, number, pointer_of, Error, Result, Status};
use crate::model::{Model, Param, Value};

/// A node with any op and its settings. [`Node::add`] adds it to the model.
///
/// ```
/// use weft::{Desc, Init, Model};
///
/// let mut model = Model::new()?;
/// let x = model.input("x", &Desc::f32([1, 6]))?;
/// let weight = model.param("weight", [6, 2], Init::Normal(0.4))?;
/// let bias = model.param("bias", [2], Init::Zeros)?;
/// let y = model.node("linear").inputs([x]).params([weight, bias]).name("narrow").add()?;
/// let y = model.node("reshape").inputs([y]).dims([-1, 2, 1]).add()?;
/// assert_eq!(model.shape(y, 3)?, Desc::f32([3, 2, 1]));
/// # Ok::<(), weft::Error>(())
/// ```
#[must_use = "a node is added by `add`"]
pub struct Node<'a> {
    model: &'a mut Model,
    raw: sys::weft_node_config,
    heads: Option<u32>,
    op: Result<CString>,
    name: Result<Option<CString>>,
    axis_name: Result<Option<CString>>,
    inputs: Result<Vec<sys::weft_value>>,
    params: Result<Vec<sys::weft_param>>,
    coordinates: Vec<i32>,
    dims: Vec<i64>,
    frequencies: Vec<f32>,
}

impl<'a> Node<'a> {
    pub(crate) fn new(model: &'a mut Model, op: &str) -> Node<'a> {
        let raw = unsafe { initialized(sys::weft_node_config_init) };
        Node {
            model,
            raw,
            heads: None,
            op: c_string(op),
            name: Ok(None),
            axis_name: Ok(None),
            inputs: Ok(Vec::new()),
            params: Ok(Vec::new()),
            coordinates: Vec::new(),
            dims: Vec::new(),
            frequencies: Vec::new(),
        }
    }

    /// A name that is unique in the model. Default: "OP_NUMBER".
    pub fn name(mut self, name: &str) -> Self {
        self.name = c_string(name).map(Some);
        self
    }

    /// The inputs, in port order.
    pub fn inputs(mut self, inputs: impl AsRef<[Value]>) -> Self {
        self.inputs = inputs.as_ref().iter().map(|value| value.of(self.model)).collect();
        self
    }

    /// The parameters, e.g. weight and bias of "linear".
    pub fn params(mut self, params: impl AsRef<[Param]>) -> Self {
        self.params = params.as_ref().iter().map(|param| param.of(self.model)).collect();
        self
    }

    /// The axis of "mean", "sum", "max", "slice", "concat" and "gather".
    pub fn axis(mut self, axis: i32) -> Self {
        self.raw.axis = axis;
        self
    }

    /// The heads of "attention", "cached_attention" and "rope".
    pub fn heads(mut self, heads: u32) -> Self {
        self.heads = Some(heads);
        self
    }

    /// The first index of a "slice", and the index after the last.
    pub fn range(mut self, range: std::ops::Range<i64>) -> Self {
        self.raw.begin = range.start;
        self.raw.end = range.end;
        self
    }

    /// The factor of "scale", the epsilon of norms, the probability of dropout, or label smoothing.
    pub fn factor(mut self, factor: f64) -> Self {
        self.raw.factor = factor;
        self
    }

    /// "batch_norm": the share of the moments of a step in the running ones, above 0 to 1.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.raw.momentum = momentum;
        self
    }

    /// "softcap": the bound. "attention", "cached_attention": scores s become cap tanh(s / cap).
    pub fn cap(mut self, cap: f64) -> Self {
        self.raw.cap = cap;
        self
    }

    /// The target of "reshape", the permutation of "transpose", stride and padding of convolutions, ...
    pub fn dims(mut self, dims: impl AsRef<[i64]>) -> Self {
        self.dims = dims.as_ref().to_vec();
        self
    }

    /// "rope": the rotation of each pair of columns per position, in radians.
    pub fn frequencies(mut self, frequencies: impl AsRef<[f32]>) -> Self {
        self.frequencies = frequencies.as_ref().to_vec();
        self
    }

    /// "gelu": the tanh approximation.
    pub fn tanh(self) -> Self {
        self.flag(sys::WEFT_NODE_TANH)
    }

    /// "attention": row t uses columns up to t.
    pub fn causal(self) -> Self {
        self.flag(sys::WEFT_NODE_CAUSAL)
    }

    /// "linear": the weight is stored as [out, in], not [in, out].
    pub fn out_in(self) -> Self {
        self.flag(sys::WEFT_NODE_OUT_IN)
    }

    /// "embedding": look up positions along the last axis of the indices, not the indices.
    pub fn positions(self) -> Self {
        self.flag(sys::WEFT_NODE_POSITIONS)
    }

    /// "cached_attention": keys and values are kept in bf16.
    pub fn bf16_cache(self) -> Self {
        self.flag(sys::WEFT_NODE_BF16_CACHE)
    }

    /// "rms_norm": the scale is 1 + the parameter.
    pub fn unit_offset(self) -> Self {
        self.flag(sys::WEFT_NODE_UNIT_OFFSET)
    }

    fn flag(mut self, flag: u32) -> Self {
        self.raw.flags |= flag;
        self
    }

    /// Collectives: the axis of the model along which they move values.
    pub fn axis_name(mut self, axis: &str) -> Self {
        self.axis_name = c_string(axis).map(Some);
        self
    }

    /// "ppermute": for each coordinate its source, or -1; "mask": coordinates that keep their value; "broadcast": the source.
    pub fn coordinates(mut self, coordinates: impl AsRef<[i32]>) -> Self {
        self.coordinates = coordinates.as_ref().to_vec();
        self
    }

    /// Adds the node.
    pub fn add(mut self) -> Result<Value> {
        let (op, name, axis_name) = (self.op?, self.name?, self.axis_name?);
        let (inputs, params) = (self.inputs?, self.params?);
        let most = self.raw.dims.len();
        if self.dims.len() > most {
            return Err(Error::new(Status::Invalid, format!("expected at most {most} dimensions, found {}", self.dims.len())));
        }
        self.raw.dims[..self.dims.len()].copy_from_slice(&self.dims);
        self.raw.n_dims = number("the number of dimensions", self.dims.len())?;
        if let Some(heads) = self.heads {
            self.raw.heads = number("heads", heads)?;
        }
        self.raw.op = op.as_ptr();
        self.raw.name = pointer_of(&name);
        self.raw.axis_name = pointer_of(&axis_name);
        (self.raw.inputs, self.raw.n_inputs) = array("inputs", &inputs)?;
        (self.raw.params, self.raw.n_params) = array("parameters", &params)?;
        (self.raw.coordinates, self.raw.n_coordinates) = array("coordinates", &self.coordinates)?;
        (self.raw.frequencies, self.raw.n_frequencies) = array("frequencies", &self.frequencies)?;
        let raw = self.raw;
        self.model.value(|model, out, err| unsafe { sys::weft_model_add_node(model, &raw, out, err) })
    }
}
