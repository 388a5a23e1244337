//! Models: graphs of ops over named parameters.
use std::mem::{size_of, MaybeUninit};
use std::ptr::{null, null_mut, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use weft_sys as sys;

use crate::error::{array, attempt, c_string, filled, initialized, number, optional_text, text_of, Error, Result, Status};
use crate::node::Node;
use crate::tensor::Desc;

/// A value inside a model, which is the only one that accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    id: u32,
    model: u64,
}

/// A parameter inside a model, which is the only one that accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    id: u32,
    model: u64,
}

impl Value {
    pub(crate) fn of(self, model: &Model) -> Result<sys::weft_value> {
        model.check_own("value", self.model)?;
        Ok(sys::weft_value { id: self.id })
    }
}

impl Param {
    pub(crate) fn of(self, model: &Model) -> Result<sys::weft_param> {
        model.check_own("parameter", self.model)?;
        Ok(sys::weft_param { id: self.id })
    }
}

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All the same.
    Constant(f64),
    /// Normal distribution with mean 0 and this standard deviation, keyed by seed, name and element.
    Normal(f64),
}

/// What [`Model::items`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Inputs
    Input,
    /// Parameters
    Param,
    /// Nodes
    Node,
    /// Outputs
    Output,
}

/// An input, parameter, node or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// The op of a node or output.
    pub op: Option<String>,
    /// The value of an input, node or output.
    pub value: Option<Value>,
    /// The parameter.
    pub param: Option<Param>,
    /// The shape, for one sample.
    pub desc: Desc,
}

/// Adapters of low rank, for [`Model::adapt`].
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Default: 8
    pub rank: u32,
    /// `alpha / rank` is the factor of an adapter. Default: 8
    pub alpha: f64,
    /// Probability with which training drops an element of the input of A.
    pub dropout: f64,
    /// Names of linear nodes, or their ends after a dot; or only `all-linear`; none: the usual projections of queries and values.
    pub targets: Vec<String>,
}

impl Default for AdapterConfig {
    fn default() -> AdapterConfig {
        AdapterConfig { rank: 8, alpha: 8.0, dropout: 0.0, targets: Vec::new() }
    }
}

/// A graph of ops over named parameters. It can be changed until a plan or a profile has been made of it.
///
/// ```
/// use weft::{Desc, Model};
///
/// let mut model = Model::new()?;
/// let x = model.input("x", &Desc::f32([1, 4]))?;
/// let y = model.linear("hidden", x, 8)?;
/// let y = model.unary("gelu", y)?;
/// model.output(y)?;
/// assert_eq!(model.shape(y, 32)?, Desc::f32([32, 8]));
/// assert_eq!(model.parameters(), 4 * 8 + 8);
/// # Ok::<(), weft::Error>(())
/// ```
///
/// Errors name the node, the port and the shapes:
///
/// ```
/// # use weft::{Desc, Model};
/// # let mut model = Model::new()?;
/// # let x = model.input("x", &Desc::f32([1, 4]))?;
/// # let y = model.input("y", &Desc::f32([1, 5]))?;
/// let error = model.binary("mse", x, y).unwrap_err();
/// assert!(error.text().contains("f32[1,5]"), "{error}");
/// # let mut other = Model::new()?;
/// # let foreign = [other.input("z", &Desc::f32([1, 4]))?, other.input("w", &Desc::f32([1, 4]))?];
/// # assert_eq!(model.unary("relu", foreign[0]).unwrap_err().text(), "the value belongs to another model");
/// # assert!(model.node("add").inputs(foreign).add().is_err());
/// # assert!(model.shape(foreign[0], 1).is_err());
/// # Ok::<(), weft::Error>(())
/// ```
pub struct Model {
    raw: NonNull<sys::weft_model>,
    number: u64, // of this process
}

// The owner of a model may be any thread, but only one at a time; so it is Send and not Sync.
unsafe impl Send for Model {}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sys::weft_model_free(self.raw()) }
    }
}

impl Model {
    /// An empty model.
    pub fn new() -> Result<Model> {
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_model_new(&mut raw, err) })?;
        Ok(Model::from_raw(raw))
    }

    pub(crate) fn from_raw(raw: *mut sys::weft_model) -> Model {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let raw = NonNull::new(raw).expect("a call that succeeds makes a model");
        Model { raw, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    fn check_own(&self, what: &str, model: u64) -> Result<()> {
        if model == self.number {
            return Ok(());
        }
        Err(Error::new(Status::Invalid, format!("the {what} belongs to another model")))
    }

    pub(crate) fn raw(&self) -> *mut sys::weft_model {
        self.raw.as_ptr()
    }

    /// Adds an input. `sample` describes one sample: dimension 0 counts samples and is 1.
    pub fn input(&mut self, name: &str, sample: &Desc) -> Result<Value> {
        self.add_input(name, sample, 0)
    }

    /// The same for an input whose gradient can be read after a step.
    pub fn input_with_gradient(&mut self, name: &str, sample: &Desc) -> Result<Value> {
        self.add_input(name, sample, sys::WEFT_INPUT_WANT_GRAD)
    }

    fn add_input(&mut self, name: &str, sample: &Desc, flags: u32) -> Result<Value> {
        let (name, sample) = (c_string(name)?, sample.raw()?);
        self.value(|model, out, err| unsafe { sys::weft_model_add_input(model, name.as_ptr(), &sample, flags, out, err) })
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &str, dims: impl AsRef<[usize]>, init: Init) -> Result<Param> {
        let (name, desc) = (c_string(name)?, Desc::f32(dims).raw()?);
        let (init, value) = match init {
            Init::Zeros => (sys::WEFT_INIT_ZEROS, 0.0),
            Init::Constant(value) => (sys::WEFT_INIT_CONSTANT, value),
            Init::Normal(deviation) => (sys::WEFT_INIT_NORMAL, deviation),
        };
        let mut out = sys::weft_param { id: 0 };
        attempt(|err| unsafe { sys::weft_model_add_param(self.raw(), name.as_ptr(), &desc, init, value, &mut out, err) })?;
        Ok(Param { id: out.id, model: self.number })
    }

    /// Begins a node with any op; see [`Node`]. `man weft_model_add_node` lists the ops.
    pub fn node(&mut self, op: &str) -> Node<'_> {
        Node::new(self, op)
    }

    /// Adds y = x W + b with the new parameters NAME.weight, initialized from N(0, 0.02), and NAME.bias, zero. For a narrow layer, a
    /// larger deviation trains faster: add the parameters and a node.
    pub fn linear(&mut self, name: &str, x: Value, out_features: usize) -> Result<Value> {
        let x = x.of(self)?;
        let (name, features) = (c_string(name)?, number("out_features", out_features)?);
        self.value(|model, out, err| unsafe { sys::weft_model_add_linear(model, name.as_ptr(), x, features, out, err) })
    }

    /// Adds an op with one input and no settings: "relu", "gelu", "tanh", "softmax", ...
    pub fn unary(&mut self, op: &str, x: Value) -> Result<Value> {
        let x = x.of(self)?;
        let op = c_string(op)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_unary(model, null(), op.as_ptr(), x, out, err) })
    }

    /// Adds an op with two inputs and no settings: "add", "mul", ..., and losses: "mse", "softmax_cross_entropy" of a result and its
    /// target.
    pub fn binary(&mut self, op: &str, a: Value, b: Value) -> Result<Value> {
        let a = a.of(self)?;
        let b = b.of(self)?;
        let op = c_string(op)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_binary(model, null(), op.as_ptr(), a, b, out, err) })
    }

    /// Adds layer normalization over the last dimension, with the new parameters NAME.weight and NAME.bias.
    pub fn layer_norm(&mut self, name: &str, x: Value) -> Result<Value> {
        let x = x.of(self)?;
        let name = c_string(name)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_layer_norm(model, name.as_ptr(), x, out, err) })
    }

    /// Adds batch normalization of the last dimension, with the new parameters NAME.weight, NAME.bias, NAME.running_mean and
    /// NAME.running_var.
    pub fn batch_norm(&mut self, name: &str, x: Value) -> Result<Value> {
        let x = x.of(self)?;
        let name = c_string(name)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_batch_norm(model, name.as_ptr(), x, out, err) })
    }

    /// Adds the rows of a new parameter NAME.weight [rows, width], initialized from N(0, 0.02), which `ids` select.
    pub fn embedding(&mut self, name: &str, ids: Value, rows: usize, width: usize) -> Result<Value> {
        self.add_embedding(name, ids, rows, width, 0)
    }

    /// The same for positions along the last axis of `ids`.
    pub fn position_embedding(&mut self, name: &str, ids: Value, rows: usize, width: usize) -> Result<Value> {
        self.add_embedding(name, ids, rows, width, sys::WEFT_NODE_POSITIONS)
    }

    fn add_embedding(&mut self, name: &str, ids: Value, rows: usize, width: usize, flags: u32) -> Result<Value> {
        let ids = ids.of(self)?;
        let name = c_string(name)?;
        let (rows, width) = (number("rows", rows)?, number("width", width)?);
        self.value(|model, out, err| unsafe {
            sys::weft_model_add_embedding(model, name.as_ptr(), ids, rows, width, flags, out, err)
        })
    }

    /// Adds attention over queries, keys and values, which are side by side in the last dimension of `qkv`. If `causal`, a row uses only
    /// the rows up to it.
    pub fn attention(&mut self, qkv: Value, heads: u32, causal: bool) -> Result<Value> {
        let qkv = qkv.of(self)?;
        let flags = if causal { sys::WEFT_NODE_CAUSAL } else { 0 };
        let heads = number("heads", heads)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_attention(model, null(), qkv, heads, flags, out, err) })
    }

    /// Adds dropout with this probability.
    pub fn dropout(&mut self, x: Value, probability: f64) -> Result<Value> {
        let x = x.of(self)?;
        self.value(|model, out, err| unsafe { sys::weft_model_add_dropout(model, null(), x, probability, out, err) })
    }

    /// Makes a value an output: forward steps deliver it.
    pub fn output(&mut self, value: Value) -> Result<()> {
        let value = value.of(self)?;
        attempt(|err| unsafe { sys::weft_model_add_output(self.raw(), value, err) }).map(drop)
    }

    /// Makes the model an SPMD program, which every coordinate of the axis executes. `man weft_model_add_axis` describes such programs.
    pub fn axis(&mut self, name: &str, size: u32) -> Result<()> {
        let name = c_string(name)?;
        attempt(|err| unsafe { sys::weft_model_add_axis(self.raw(), name.as_ptr(), size, err) }).map(drop)
    }

    /// Cuts dimension `dim` of an input over an axis into equal pieces, one per coordinate. If `drop_dim`, a coordinate has one index of
    /// the dimension, and its value lacks that dimension.
    pub fn cut_input(&mut self, input: Value, dim: u32, axis: &str, drop_dim: bool) -> Result<()> {
        let input = input.of(self)?;
        let (axis, flags) = (c_string(axis)?, cut_flags(drop_dim));
        attempt(|err| unsafe { sys::weft_model_cut_input(self.raw(), input, dim, axis.as_ptr(), flags, err) }).map(drop)
    }

    /// The same for a parameter.
    pub fn cut_param(&mut self, param: Param, dim: u32, axis: &str, drop_dim: bool) -> Result<()> {
        let param = param.of(self)?;
        let (axis, flags) = (c_string(axis)?, cut_flags(drop_dim));
        attempt(|err| unsafe { sys::weft_model_cut_param(self.raw(), param, dim, axis.as_ptr(), flags, err) }).map(drop)
    }

    /// The same for an output.
    pub fn cut_output(&mut self, output: Value, dim: u32, axis: &str, drop_dim: bool) -> Result<()> {
        let output = output.of(self)?;
        let (axis, flags) = (c_string(axis)?, cut_flags(drop_dim));
        attempt(|err| unsafe { sys::weft_model_cut_output(self.raw(), output, dim, axis.as_ptr(), flags, err) }).map(drop)
    }

    /// All nodes that use the parameter at one coordinate add their gradients to one sum.
    pub fn share_gradient(&mut self, param: Param) -> Result<()> {
        let param = param.of(self)?;
        attempt(|err| unsafe { sys::weft_model_share_gradient(self.raw(), param, err) }).map(drop)
    }

    /// The type and dimensions of a value for a number of samples.
    pub fn shape(&self, value: Value, samples: usize) -> Result<Desc> {
        let value = value.of(self)?;
        let samples = number("samples", samples)?;
        let mut out = MaybeUninit::uninit();
        attempt(|err| unsafe { sys::weft_model_shape(self.raw(), value, samples, out.as_mut_ptr(), err) })?;
        Ok(Desc::from_raw(unsafe { &out.assume_init() }))
    }

    /// Makes a copy in which linear nodes have adapters of low rank, the parameters `NAME.lora_A.weight` and `NAME.lora_B.weight`. The copy cannot
    /// be changed. Groups of a plan select what is trained.
    pub fn adapt(&self, adapters: &AdapterConfig) -> Result<Model> {
        let names = adapters.targets.iter().map(|name| c_string(name)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let mut config = unsafe { initialized(sys::weft_adapter_config_init) };
        config.rank = adapters.rank;
        config.alpha = adapters.alpha;
        config.dropout = adapters.dropout;
        (config.targets, config.n_targets) = array("targets", &pointers)?;
        let mut raw = null_mut();
        attempt(|err| unsafe { sys::weft_model_adapt(self.raw(), &config, &mut raw, err) })?;
        Ok(Model::from_raw(raw))
    }

    /// The number of elements of all parameters.
    pub fn parameters(&self) -> usize {
        unsafe { sys::weft_model_parameters(self.raw()) as usize }
    }

    /// All items of a kind, in the order in which they were added.
    pub fn items(&self, kind: ItemKind) -> Vec<Item> {
        let kind = match kind {
            ItemKind::Input => sys::WEFT_ITEM_INPUT,
            ItemKind::Param => sys::WEFT_ITEM_PARAM,
            ItemKind::Node => sys::WEFT_ITEM_NODE,
            ItemKind::Output => sys::WEFT_ITEM_OUTPUT,
        };
        (0..).map_while(|index| unsafe { self.item(kind, index) }).collect()
    }

    unsafe fn item(&self, kind: sys::weft_item_kind, index: u32) -> Option<Item> {
        let item = filled(|out| sys::weft_model_describe(self.raw(), kind, index, out)).ok()?;
        Some(Item {
            name: text_of(item.name),
            op: optional_text(item.op),
            value: Some(Value { id: item.value.id, model: self.number }).filter(|value| value.id != 0),
            param: Some(Param { id: item.param.id, model: self.number }).filter(|param| param.id != 0),
            desc: Desc::from_raw(&item.desc),
        })
    }

    pub(crate) fn value(
        &mut self,
        add: impl FnOnce(*mut sys::weft_model, *mut sys::weft_value, *mut sys::weft_error) -> sys::weft_status,
    ) -> Result<Value> {
        let mut out = sys::weft_value { id: 0 };
        attempt(|err| add(self.raw(), &mut out, err))?;
        Ok(Value { id: out.id, model: self.number })
    }
}

fn cut_flags(drop_dim: bool) -> u32 {
    if drop_dim {
        sys::WEFT_CUT_DROP
    } else {
        0
    }
}

/// A preset of the library and its data.
pub struct Preset {
    /// The model, which cannot be changed.
    pub model: Model,
    /// Inputs "tokens" and "targets" (I32 [1, seq_len]) and logits; otherwise "x" and "target" (F32 [1, width]).
    pub tokens: bool,
    /// Of a preset with tokens.
    pub vocabulary: usize,
    /// The longest sequence, in tokens.
    pub context: usize,
    /// Tokens per sample.
    pub seq_len: usize,
    /// Of a preset without tokens.
    pub width: usize,
    /// The name with every key, which makes the same model in later versions.
    pub text: String,
}

impl Preset {
    /// Makes a model by name, with optional keys: "mlp", "gpt-nano:context=64", "gpt2", "llama", ... `man weft-train` lists the names, the keys
    /// and their defaults. `seq_len` is the number of tokens per sample; 0 is the whole context. An mlp without a number of layers has at
    /// least `stages` layers.
    pub fn new(text: &str, seq_len: usize, stages: u32) -> Result<Preset> {
        let (text, seq_len) = (c_string(text)?, number("seq_len", seq_len)?);
        let mut raw = null_mut();
        let mut info: sys::weft_preset_info = unsafe { std::mem::zeroed() };
        info.size = size_of::<sys::weft_preset_info>() as u32;
        attempt(|err| unsafe { sys::weft_model_preset(text.as_ptr(), seq_len, stages, &mut raw, &mut info, err) })?;
        Ok(Preset::of(raw, info))
    }

    /// Makes a preset with tokens for packed samples: a model with the same parameters in which a sample has several sequences, one after another.
    /// It has a third input, "positions" (I32 [1, seq_len]): that of each token in its sequence, from 0. Targets of padding are -1.
    pub fn packed(text: &str, seq_len: usize, stages: u32) -> Result<Preset> {
        let (text, seq_len) = (c_string(text)?, number("seq_len", seq_len)?);
        let mut raw = null_mut();
        let mut info: sys::weft_preset_info = unsafe { std::mem::zeroed() };
        info.size = size_of::<sys::weft_preset_info>() as u32;
        attempt(|err| unsafe { sys::weft_model_packed(text.as_ptr(), seq_len, stages, &mut raw, &mut info, err) })?;
        Ok(Preset::of(raw, info))
    }

    /// Makes the decoder of a preset with tokens: a model with the same parameters that keeps the keys and values of `sequences` sequences of
    /// `context` positions (0: the context of the model) between forward steps. A sample is a token. Inputs, all I32 [1, 1]: "tokens"; "positions",
    /// of each in its sequence, from 0; "sequences", from 0, or -1 for a sample without a sequence. Output: logits.
    pub fn decoder(text: &str, sequences: usize, context: usize, bf16_cache: bool) -> Result<Preset> {
        let text = c_string(text)?;
        let mut raw = null_mut();
        let mut info: sys::weft_preset_info = unsafe { std::mem::zeroed() };
        info.size = size_of::<sys::weft_preset_info>() as u32;
        let mut config = unsafe { initialized(sys::weft_decoder_config_init) };
        config.sequences = number("sequences", sequences)?;
        config.context = number("context", context)?;
        if bf16_cache {
            config.flags = sys::WEFT_NODE_BF16_CACHE;
        }
        attempt(|err| unsafe { sys::weft_model_decoder(text.as_ptr(), &config, &mut raw, &mut info, err) })?;
        Ok(Preset::of(raw, info))
    }

    fn of(raw: *mut sys::weft_model, info: sys::weft_preset_info) -> Preset {
        Preset {
            tokens: info.tokens == 1,
            vocabulary: info.vocabulary as usize,
            context: info.context as usize,
            seq_len: info.seq_len as usize,
            width: info.width as usize,
            text: unsafe { text_of(info.text) },
            model: Model::from_raw(raw),
        }
    }
}
