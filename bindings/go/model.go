package weft

/*
#include <weft.h>
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
)

// Value is a value inside a model, which is the only one that accepts it. The zero value is none.
type Value struct {
	id    C.weft_value
	model *Model
}

// Param is a parameter inside a model, as Value.
type Param struct {
	id    C.weft_param
	model *Model
}

// Model is a graph of ops over named parameters.
//
// A method that adds to the model returns a zero Value or Param if it fails. The model keeps its first error and adds nothing after it;
// [Model.Err] and all functions that take a model return that error. A program can therefore build a model without a check in each line.
type Model struct {
	mu  sync.Mutex
	c   *C.weft_model
	err error
	ops []*op
}

// NewModel creates an empty model.
func NewModel() *Model {
	m, err := &Model{}, newError()
	m.err = failed(C.weft_model_new(&m.c, err), err)
	runtime.SetFinalizer(m, (*Model).Close)
	return m
}

// Close frees the model. A plan that was made from it remains valid.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	C.weft_model_free(m.c)
	m.c, m.ops = nil, nil
	runtime.SetFinalizer(m, nil)
	return nil
}

// Err returns the first failure of a method that adds to the model.
func (m *Model) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usable()
}

func (m *Model) usable() error {
	if m.err == nil && m.c == nil {
		return &Error{Status: ESTATE, Text: "the model is closed"}
	}
	return m.err
}

// add makes a call that adds to the model, unless one has failed before.
func (m *Model) add(function func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usable() == nil {
		m.err = m.made(function)
	}
}

// addValue is add for a call that makes a value.
func (m *Model) addValue(function func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status) Value {
	var id C.weft_value
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return function(own, model, &id, err)
	})
	return m.value(id)
}

func (m *Model) value(id C.weft_value) Value {
	if id.id == 0 {
		return Value{}
	}
	return Value{id, m}
}

func (m *Model) param(id C.weft_param) Param {
	if id.id == 0 {
		return Param{}
	}
	return Param{id, m}
}

// in returns the value for a call with the model.
func (v Value) in(m *Model, own *memory) C.weft_value {
	own.checkModel("value", v.model, m)
	return v.id
}

func (p Param) in(m *Model, own *memory) C.weft_param {
	own.checkModel("parameter", p.model, m)
	return p.id
}

// checkModel refuses what belongs to another model. The library reports what belongs to none.
func (m *memory) checkModel(what string, found, expected *Model) {
	if found != nil && found != expected {
		m.refuse(&Error{Status: EINVAL, Text: "the " + what + " belongs to another model"})
	}
}

// call makes a call with the model that does not add to it.
func (m *Model) call(function func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status) error {
	if m == nil {
		return errNil("model")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made(function)
}

func (m *Model) made(function func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status) error {
	if err := m.usable(); err != nil {
		return err
	}
	return m.caused(call(func(own *memory, err *C.weft_error) C.weft_status { return function(own, m.c, err) }))
}

// borrow returns the model for a call of another object.
func (m *Model) borrow(own *memory) *C.weft_model {
	if m == nil {
		own.refuse(errNil("model"))
	}
	model := borrow(own, &m.mu, &m.c, "model")
	if m.err != nil {
		own.refuse(m.err)
	}
	return model
}

// Input adds an input. dims are those of one sample; the number of samples is dimension 0 of the tensors of a step, before them.
func (m *Model) Input(name string, dtype DType, dims ...int) Value {
	return m.input(name, dtype, dims, 0)
}

// InputWithGrad adds an input whose gradient [Run.Read] returns after a step.
func (m *Model) InputWithGrad(name string, dtype DType, dims ...int) Value {
	return m.input(name, dtype, dims, C.WEFT_INPUT_WANT_GRAD)
}

func (m *Model) input(name string, dtype DType, dims []int, flags C.uint32_t) Value {
	desc := toDesc(Desc{dtype, append([]int{1}, dims...)})
	return m.addValue(func(own *memory, model *C.weft_model, out *C.weft_value, err *C.weft_error) C.weft_status {
		return C.weft_model_add_input(model, own.text(name), &desc, flags, out, err)
	})
}

// Init is the initial values of a parameter. The zero value is zeros.
type Init struct {
	kind  C.weft_init
	value float64
}

// Constant is an initial value of all elements.
func Constant(value float64) Init { return Init{C.WEFT_INIT_CONSTANT, value} }

// Normal draws initial values from a normal distribution with mean 0, keyed by the seed of the plan, the name and the element.
func Normal(deviation float64) Init { return Init{C.WEFT_INIT_NORMAL, deviation} }

// Param adds a parameter, which is always F32.
func (m *Model) Param(name string, init Init, dims ...int) Param {
	var id C.weft_param
	desc := toDesc(Desc{F32, dims})
	if init.kind == 0 {
		init.kind = C.WEFT_INIT_ZEROS
	}
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_add_param(model, own.text(name), &desc, init.kind, C.double(init.value), &id, err)
	})
	return m.param(id)
}

// Output makes a value an output: steps of Forward deliver it.
func (m *Model) Output(value Value) {
	m.add(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_add_output(model, value.in(m, own), err)
	})
}

// Parameters returns the number of elements of all parameters.
func (m *Model) Parameters() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(C.weft_model_parameters(m.c))
}

// Shape returns the type and dimensions of a value for a number of samples.
func (m *Model) Shape(value Value, samples int) (Desc, error) {
	var desc C.weft_desc
	err := m.call(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		return C.weft_model_shape(model, value.in(m, own), C.int64_t(samples), &desc, err)
	})
	if err != nil {
		return Desc{}, err
	}
	return fromDesc(&desc), nil
}

// ItemKind is what [Model.Items] lists.
type ItemKind uint32

const (
	InputItem  ItemKind = C.WEFT_ITEM_INPUT
	ParamItem  ItemKind = C.WEFT_ITEM_PARAM
	NodeItem   ItemKind = C.WEFT_ITEM_NODE
	OutputItem ItemKind = C.WEFT_ITEM_OUTPUT
)

// Item is an input, parameter, node or output of a model.
type Item struct {
	Name  string
	Op    string // of a node or output
	Value Value  // of an input, node or output
	Param Param  // of a parameter
	Desc  Desc   // of one sample
}

// Items lists the items of a kind, in the order in which they were added.
func (m *Model) Items(kind ItemKind) []Item {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items(kind)
}

func (m *Model) items(kind ItemKind) []Item {
	var out []Item
	item := C.weft_item{size: C.sizeof_weft_item}
	for C.weft_model_describe(m.c, C.weft_item_kind(kind), C.uint32_t(len(out)), &item) == 0 {
		out = append(out, Item{C.GoString(item.name), C.GoString(item.op), m.value(item.value), m.param(item.param), fromDesc(&item.desc)})
	}
	return out
}

// NewBatch makes a tensor of this many samples for each input.
func (m *Model) NewBatch(samples int) (Batch, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	var batch Batch
	for _, input := range m.Items(InputItem) {
		dims := input.Desc.Dims
		dims[0] = samples
		tensor, err := NewTensor(input.Desc.DType, dims...)
		if err != nil {
			batch.Close()
			return nil, fmt.Errorf("input %q: %w", input.Name, err)
		}
		batch = append(batch, tensor)
	}
	return batch, nil
}

// PresetInfo describes a preset and its data.
type PresetInfo struct {
	Tokens              bool // inputs "tokens" and "targets" (I32 [1, SeqLen]), output logits; else "x" and "target" (F32 [1, Width])
	Vocabulary, Context int  // of a preset with tokens
	SeqLen              int
	Width               int
	Text                string // the name with every key, which makes the same model in later versions
}

// NewPreset makes a model by name, NAME[:key=value,...]: "mlp", "gpt-nano", "gpt2", "llama", ...; weft-train(1) lists the names, the keys and
// their defaults. seqLen is the number of tokens per sample; 0 is the whole context. An mlp without a number of layers has at least stages
// layers.
func NewPreset(text string, seqLen, stages int) (*Model, PresetInfo, error) {
	return preset(func(own *memory, model **C.weft_model, info *C.weft_preset_info, err *C.weft_error) C.weft_status {
		return C.weft_model_preset(own.text(text), C.int64_t(seqLen), own.unsigned("stages", stages), model, info, err)
	})
}

// NewPacked makes a preset with tokens for packed samples: a model with the same parameters in which a sample has several sequences, one after
// another. It has a third input, "positions" (I32 [1, SeqLen]): that of each token in its sequence, from 0. Targets of padding are -1.
func NewPacked(text string, seqLen, stages int) (*Model, PresetInfo, error) {
	return preset(func(own *memory, model **C.weft_model, info *C.weft_preset_info, err *C.weft_error) C.weft_status {
		return C.weft_model_packed(own.text(text), C.int64_t(seqLen), own.unsigned("stages", stages), model, info, err)
	})
}

// DecoderConfig is the cache of a decoder.
type DecoderConfig struct {
	Flags     NodeFlags // 0 or Bf16Cache
	Sequences int       // that the cache has a place for; 0: 1
	Context   int       // positions of each sequence; 0: the context of the model
}

// NewDecoder makes the decoder of a preset with tokens: a model with the same parameters that keeps the keys and values of sequences between
// forward steps. A sample is a token. Inputs, all I32 [1, 1]: "tokens"; "positions", of each in its sequence, from 0; "sequences", from 0, or -1
// for a sample without a sequence. Output: logits.
func NewDecoder(text string, config DecoderConfig) (*Model, PresetInfo, error) {
	return preset(func(own *memory, model **C.weft_model, info *C.weft_preset_info, err *C.weft_error) C.weft_status {
		var c C.weft_decoder_config
		C.weft_decoder_config_init(&c, C.sizeof_weft_decoder_config)
		c.flags, c.context = C.uint32_t(config.Flags), C.int64_t(config.Context)
		if config.Sequences != 0 {
			c.sequences = C.int64_t(config.Sequences)
		}
		return C.weft_model_decoder(own.text(text), &c, model, info, err)
	})
}

// AdapterConfig describes adapters of low rank.
type AdapterConfig struct {
	Rank    int      // 0: 8
	Alpha   float64  // 0: 8
	Dropout float64  // probability with which training drops an element of the input of A
	Targets []string // names of linear nodes, or their ends after a dot; or only "all-linear"
}

// Adapt makes a copy of a model in which linear nodes have adapters, the parameters NAME.lora_A.weight and NAME.lora_B.weight. The copy cannot be
// changed. Groups of a plan select what is trained.
func (m *Model) Adapt(config AdapterConfig) (*Model, error) {
	out := &Model{}
	err := m.call(func(own *memory, model *C.weft_model, err *C.weft_error) C.weft_status {
		var c C.weft_adapter_config
		C.weft_adapter_config_init(&c, C.sizeof_weft_adapter_config)
		if config.Rank != 0 {
			c.rank = own.unsigned("rank", config.Rank)
		}
		if config.Alpha != 0 {
			c.alpha = C.double(config.Alpha)
		}
		c.dropout = C.double(config.Dropout)
		c.targets, c.n_targets = array(own, config.Targets, own.text), count(len(config.Targets))
		out.ops = m.ops
		return C.weft_model_adapt(model, &c, &out.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(out, (*Model).Close)
	return out, nil
}

func preset(make func(*memory, **C.weft_model, *C.weft_preset_info, *C.weft_error) C.weft_status) (*Model, PresetInfo, error) {
	m, c := &Model{}, C.weft_preset_info{size: C.sizeof_weft_preset_info}
	err := call(func(own *memory, err *C.weft_error) C.weft_status { return make(own, &m.c, &c, err) })
	if err != nil {
		return nil, PresetInfo{}, err
	}
	runtime.SetFinalizer(m, (*Model).Close)
	return m, PresetInfo{c.tokens != 0, int(c.vocabulary), int(c.context), int(c.seq_len), int(c.width), C.GoString(c.text)}, nil
}
