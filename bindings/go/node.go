package weft

/*
#include <weft.h>
*/
import "C"

// NodeFlags are flags of a node.
type NodeFlags uint32

const (
	TanhGelu  NodeFlags = C.WEFT_NODE_TANH      // gelu: the tanh approximation
	Causal    NodeFlags = C.WEFT_NODE_CAUSAL    // attention: row t uses columns up to t
	OutIn     NodeFlags = C.WEFT_NODE_OUT_IN    // linear: the weight is stored as [out, in], not [in, out]
	Positions NodeFlags = C.WEFT_NODE_POSITIONS // embedding: look up positions along the last axis of the indices, not the indices

	Bf16Cache  NodeFlags = C.WEFT_NODE_BF16_CACHE  // cached_attention: keys and values are kept in bf16
	UnitOffset NodeFlags = C.WEFT_NODE_UNIT_OFFSET // rms_norm: the scale is 1 + the parameter
)

// Node is one op with its operands. weft_model_add_node(3) lists the ops, the collectives and the fields that they use.
type Node struct {
	Name        string // unique in a model; "": the op and a number
	Op          string // a built-in op, or one of Model.AddOp
	Flags       NodeFlags
	Inputs      []Value // in port order
	Params      []Param
	Axis        int       // mean, sum, max, slice, concat, gather
	Heads       int       // attention, cached_attention, rope
	Begin, End  int       // slice
	Factor      float64   // scale: factor; norms: epsilon; dropout, attention: probability; rope: multiplies rotated columns, 0 is 1; softmax_cross_entropy: label smoothing
	Dims        []int     // reshape, transpose, conv1d, conv2d, max_pool, average_pool, mean, sum, max, all_to_all, cached_attention
	AxisName    string    // collectives: the axis of the model
	Coordinates []int     // ppermute: sources, or -1 for zeros; mask: coordinates that keep their value; broadcast: the source
	Frequencies []float32 // rope: the rotation of each pair of columns per position, in radians
	Momentum    float64   // batch_norm: the share of the moments of a step in the running ones, above 0 to 1
	Cap         float64   // softcap: the bound; attention, cached_attention: scores s become cap tanh(s / cap), 0 is none
}

// Add adds a node and infers its shape. An error names the node, the port and both shapes.
func (m *Model) Add(node Node) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		var c C.weft_node_config
		C.weft_node_config_init(&c, C.sizeof_weft_node_config)
		c.flags, c.name, c.op, c.axis_name = C.uint32_t(node.Flags), own.str(node.Name), own.text(node.Op), own.str(node.AxisName)
		c.inputs = array(own, node.Inputs, func(v Value) C.weft_value { return v.in(m, own) })
		c.params = array(own, node.Params, func(p Param) C.weft_param { return p.in(m, own) })
		c.coordinates = array(own, node.Coordinates, func(n int) C.int32_t { return own.signed("a coordinate", n) })
		c.frequencies = array(own, node.Frequencies, func(f float32) C.float { return C.float(f) })
		c.n_frequencies = count(len(node.Frequencies))
		c.n_inputs, c.n_params, c.n_coordinates = count(len(node.Inputs)), count(len(node.Params)), count(len(node.Coordinates))
		c.axis, c.heads, c.begin, c.end = own.signed("axis", node.Axis), own.signed("heads", node.Heads), C.int64_t(node.Begin), C.int64_t(node.End)
		c.factor, c.momentum, c.cap, c.n_dims = C.double(node.Factor), C.double(node.Momentum), C.double(node.Cap), count(len(node.Dims))
		for i := 0; i < len(node.Dims) && i < MaxDims; i++ {
			c.dims[i] = C.int64_t(node.Dims[i])
		}
		return C.weft_model_add_node(model, &c, out, err)
	})
}

// Linear adds y = x W + b with new parameters: NAME.weight, initialized from N(0, 0.02), and NAME.bias, zero. The deviation suits wide
// layers. For narrow ones, about 1 / sqrt(in) trains faster: add the parameters and a node.
func (m *Model) Linear(name string, x Value, outFeatures int) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_linear(model, own.text(name), x.in(m, own), C.int64_t(outFeatures), out, err)
	})
}

// Unary adds an op with one input and no settings: "relu", "gelu", "tanh", "softmax", ...
func (m *Model) Unary(op string, x Value) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_unary(model, nil, own.text(op), x.in(m, own), out, err)
	})
}

// Binary adds an op with two inputs and no settings: "add", "mul", ..., and losses: "mse", "softmax_cross_entropy" of a result and its
// target.
func (m *Model) Binary(op string, a, b Value) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_binary(model, nil, own.text(op), a.in(m, own), b.in(m, own), out, err)
	})
}

// LayerNorm adds layer normalization over the last dimension, with epsilon 1e-5 and new parameters: NAME.weight, 1, and NAME.bias, 0.
func (m *Model) LayerNorm(name string, x Value) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_layer_norm(model, own.text(name), x.in(m, own), out, err)
	})
}

// BatchNorm adds batch normalization of the last dimension, with epsilon 1e-5, momentum 0.1 and new parameters: NAME.weight and
// NAME.running_var, 1, and NAME.bias and NAME.running_mean, 0.
func (m *Model) BatchNorm(name string, x Value) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_batch_norm(model, own.text(name), x.in(m, own), out, err)
	})
}

// Embedding adds the rows of a new parameter NAME.weight [rows, width], initialized from N(0, 0.02), which ids select. flags: 0 or
// Positions.
func (m *Model) Embedding(name string, ids Value, rows, width int, flags NodeFlags) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_embedding(model, own.text(name), ids.in(m, own), C.int64_t(rows), C.int64_t(width), C.uint32_t(flags), out, err)
	})
}

// Attention adds attention over queries, keys and values, which are side by side in the last dimension of qkv. flags: 0 or Causal.
func (m *Model) Attention(qkv Value, heads int, flags NodeFlags) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_attention(model, nil, qkv.in(m, own), own.signed("heads", heads), C.uint32_t(flags), out, err)
	})
}

// Dropout adds dropout with this probability.
func (m *Model) Dropout(x Value, probability float64) Value {
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_dropout(model, nil, x.in(m, own), C.double(probability), out, err)
	})
}

// Axis makes the model an SPMD program, which every coordinate of the axis executes; weft_model_add_axis(3) describes it.
func (m *Model) Axis(name string, size int) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_add_axis(model, own.text(name), own.unsigned("size", size), err)
	})
}

// CutFlags are flags of Model.CutInput, CutParam and CutOutput.
type CutFlags uint32

// Drop gives a coordinate one index of the dimension; its value lacks that dimension.
const Drop CutFlags = C.WEFT_CUT_DROP

// CutInput cuts dimension dim of an input over an axis into equal pieces, one per coordinate, before a node uses it. Dimension 0 is the
// samples, which cannot be cut.
func (m *Model) CutInput(input Value, dim int, axis string, flags CutFlags) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_cut_input(model, input.in(m, own), own.unsigned("dim", dim), own.text(axis), C.uint32_t(flags), err)
	})
}

// CutParam cuts a dimension of a parameter, as CutInput.
func (m *Model) CutParam(param Param, dim int, axis string, flags CutFlags) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_cut_param(model, param.in(m, own), own.unsigned("dim", dim), own.text(axis), C.uint32_t(flags), err)
	})
}

// CutOutput cuts a dimension of an output, as CutInput.
func (m *Model) CutOutput(output Value, dim int, axis string, flags CutFlags) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_cut_output(model, output.in(m, own), own.unsigned("dim", dim), own.text(axis), C.uint32_t(flags), err)
	})
}

// ShareGradient adds the gradients of all nodes that use the parameter at one coordinate to one sum. Call it before a node uses the
// parameter. It changes the order of additions and the digest.
func (m *Model) ShareGradient(param Param) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_share_gradient(model, param.in(m, own), err)
	})
}
