package weft

/*
#include <weft.h>
*/
import "C"

import "time"

// Rule is an update rule, as in PyTorch.
type Rule uint32

const (
	AdamW Rule = C.WEFT_ADAMW
	Adam  Rule = C.WEFT_ADAM
	SGD   Rule = C.WEFT_SGD
)

// Curve is the learning rate over the steps.
type Curve uint32

const (
	ConstantRate Curve = C.WEFT_RATE_CONSTANT
	Cosine       Curve = C.WEFT_RATE_COSINE
	LinearRate   Curve = C.WEFT_RATE_LINEAR
)

// Optimizer is an update rule and its settings.
type Optimizer struct {
	Rule              Rule    // default: AdamW
	Rate              float64 // learning rate; default: 1e-3
	Momentum          float64 // SGD
	Beta1, Beta2, Eps float64 // Adam, AdamW; defaults: 0.9, 0.999, 1e-8
	WeightDecay       float64 // of parameters with 2 dimensions or more
	Clip              float64 // the maximum global norm of the gradients; None: no clipping; default: 1
	Curve             Curve   // default: ConstantRate
	DecayAll          bool    // parameters with 0 and 1 dimensions decay as well
	Warmup            uint64  // steps of linear warm-up
	Total             uint64  // Cosine, LinearRate: steps until MinRate
	MinRate           float64 // Cosine, LinearRate
}

func (o *Optimizer) fill(c *C.weft_optimizer) {
	C.weft_optimizer_init(c, C.sizeof_weft_optimizer)
	if o.Rule != 0 {
		c.rule = C.weft_rule(o.Rule)
	}
	if o.Curve != 0 {
		c.curve = C.weft_rate_curve(o.Curve)
	}
	setNumber(&c.rate, o.Rate)
	setNumber(&c.momentum, o.Momentum)
	setNumber(&c.beta1, o.Beta1)
	setNumber(&c.beta2, o.Beta2)
	setNumber(&c.eps, o.Eps)
	setNumber(&c.weight_decay, o.WeightDecay)
	setNumber(&c.clip, o.Clip)
	setNumber(&c.min_rate, o.MinRate)
	c.decay_all, c.warmup, c.total = flag(o.DecayAll), C.uint64_t(o.Warmup), C.uint64_t(o.Total)
}

// Split is how the model is cut into stages.
type Split uint32

const (
	SplitCost       Split = C.WEFT_SPLIT_COST       // minimizes the cost of the slowest stage
	SplitUniform    Split = C.WEFT_SPLIT_UNIFORM    // equal numbers of nodes
	SplitParameters Split = C.WEFT_SPLIT_PARAMETERS // equal numbers of parameters
	SplitType       Split = C.WEFT_SPLIT_TYPE       // equal numbers of nodes of one op, PlanConfig.SplitType
	SplitPipeDream  Split = C.WEFT_SPLIT_PIPEDREAM  // the partitioner of PipeDream
)

// StepKinds are the kinds of steps that the runs of a plan make; a mask.
type StepKinds uint32

const (
	TrainSteps   StepKinds = C.WEFT_STEPS_TRAIN   // Train, NoUpdate; without it there are no gradients and no optimizer state
	EvalSteps    StepKinds = C.WEFT_STEPS_EVAL    // Eval
	ForwardSteps StepKinds = C.WEFT_STEPS_FORWARD // Forward; without it and the outputs below rank 0 has no memory for outputs
	FillSteps    StepKinds = C.WEFT_STEPS_FILL    // Fill
	AllSteps     StepKinds = C.WEFT_STEPS_ALL     // all kinds above that the model allows

	TrainOutputs StepKinds = C.WEFT_STEPS_TRAIN_OUTPUTS // with TrainSteps: these steps deliver the outputs, too
	EvalOutputs  StepKinds = C.WEFT_STEPS_EVAL_OUTPUTS  // with EvalSteps: these steps deliver the outputs, too
)

// AutoWarmUp selects the warm-up with the shortest predicted step.
const AutoWarmUp = noCount

// Axis is an axis of the mesh of ranks: "data" (replicas), "stage" (the ranks of a pipeline), "tensor" (ranks that share a stage), an axis
// of the model in place of "tensor", or only "auto".
type Axis struct {
	Name string
	Size int
}

// ParameterGroup is how a plan trains the parameters whose names match a pattern. The last group that matches a parameter determines how it is
// trained; groups are not combined.
type ParameterGroup struct {
	Pattern           string  // of whole names: '*' is any text, '?' any character. It must match a parameter.
	Frozen            bool    // the parameters are not trained
	RateFactor        float64 // the learning rate is multiplied by it; default: 1
	WeightDecayFactor float64 // the weight decay is multiplied by it, for parameters that decay; default: 1
}

func (g ParameterGroup) toC(own *memory) (c C.weft_parameter_group) {
	C.weft_parameter_group_init(&c, C.sizeof_weft_parameter_group)
	c.pattern, c.frozen = own.text(g.Pattern), flag(g.Frozen)
	setNumber(&c.rate_factor, g.RateFactor)
	setNumber(&c.weight_decay_factor, g.WeightDecayFactor)
	return c
}

// PlanConfig is what NewPlan makes a plan from. weft_plan_new(3) describes the fields.
type PlanConfig struct {
	Ranks          int    // of a pipeline; with Axes, 0 or the product of their sizes; default: 1
	MicroBatches   int    // per step; default: 8
	MicroBatchSize int    // samples; default: 4
	ShortSize      int    // samples that the last micro-batch of a step may have instead
	Split          Split  // default: SplitCost
	Schedule       string // a name of Schedules; "auto": the best of Compare; default: "1f1b"
	Cuts           []string
	Steps          StepKinds // default: AllSteps
	Seed           uint64
	Optimizer      Optimizer
	Chunks         int // stages per rank; 0: the number that the schedule uses
	// Interleaved schedules: micro-batches per chunk before the next chunk; 0: the number of ranks. "1f1b-delayed-w": micro-batches whose weight
	// gradients follow one another; 0: 4; with "auto", 4 or 8.
	Group          int
	WarmUp         int    // 1f1b: forward actions before the first backward action, per later rank, or AutoWarmUp; default: 1
	Segment        int    // asynchronous schedules: updates per step; 0: 16, or the next multiple of all StageReplicas
	ScheduleText   string // a written schedule, in the form of Plan.Timetable; replaces Schedule
	Recompute      string // "none", "stage", "every:N" or "auto"; default: "none"
	MemoryLimit    uint64 // bytes per rank; 0: no limit
	SplitType      string // SplitType: the name of an op
	Profile        *Profile
	Speeds         []float64     // of each rank, relative to the machine of the profile
	LinkLatency    time.Duration // of a message
	LinkBandwidth  float64       // bytes per second of a link in each direction; 0: no limit
	Cluster        *Cluster      // replaces Speeds and the links
	VerticalSync   bool          // asynchronous schedules: all stages use the version of the weights that the first stage uses
	GradientGroups int           // decides rounding; 0: the number of replicas
	Tensor         int           // pieces into which large nodes are cut; decides rounding; 0: the size of the axis "tensor"
	Axes           []Axis
	Shard          string           // what replicas keep in parts: "none", "optimizer", "parameters" or "auto"; default: "optimizer"
	StageReplicas  string           // asynchronous schedules: ranks of each stage, for example "3,1"; "pipedream-2bw": all equal; decides rounding
	Groups         []ParameterGroup // parameters that are frozen or have their own factors
	Precision      string           // type in which values and gradients between nodes are stored and sent: "f32" or "bf16"; default: "f32"
	F32Nodes       string           // nodes that have f32 with Precision "bf16": "NAME,...", where * is any text, ? any character
}

// fill translates the configuration. What it points to is in memory of C.
func (p *PlanConfig) fill(c *C.weft_plan_config, own *memory) {
	C.weft_plan_config_init(c, C.sizeof_weft_plan_config)
	optimizer := (*C.weft_optimizer)(own.bytes(C.sizeof_weft_optimizer))
	p.Optimizer.fill(optimizer)
	c.optimizer = optimizer
	p.fillSizes(c, own)
	setText(&c.schedule, own.str(p.Schedule))
	setText(&c.schedule_text, own.str(p.ScheduleText))
	setText(&c.recompute, own.str(p.Recompute))
	setText(&c.split_type, own.str(p.SplitType))
	setText(&c.shard, own.str(p.Shard))
	setText(&c.stage_replicas, own.str(p.StageReplicas))
	setText(&c.precision, own.str(p.Precision))
	setText(&c.f32_nodes, own.str(p.F32Nodes))
	c.cuts, c.n_cuts = array(own, p.Cuts, own.text), count(len(p.Cuts))
	c.speeds, c.n_speeds = array(own, p.Speeds, func(x float64) C.double { return C.double(x) }), count(len(p.Speeds))
	c.axes, c.n_axes = array(own, p.Axes, func(a Axis) C.weft_axis {
		return C.weft_axis{name: own.text(a.Name), size: own.unsigned("size", a.Size)}
	}), count(len(p.Axes))
	c.groups = array(own, p.Groups, func(g ParameterGroup) C.weft_parameter_group { return g.toC(own) })
	c.n_groups = count(len(p.Groups))
	if p.Profile != nil {
		c.profile = p.Profile.borrow(own)
	}
	if p.Cluster != nil {
		c.cluster = borrow(own, p.Cluster.mu.RLocker(), &p.Cluster.c, "cluster")
	}
}

func (p *PlanConfig) fillSizes(c *C.weft_plan_config, own *memory) {
	own.setCount(&c.ranks, "ranks", p.Ranks)
	own.setCount(&c.micro_batches, "micro_batches", p.MicroBatches)
	own.setCount(&c.micro_batch_size, "micro_batch_size", p.MicroBatchSize)
	own.setCount(&c.short_size, "short_size", p.ShortSize)
	own.setCount(&c.chunks, "chunks", p.Chunks)
	own.setCount(&c.group, "group", p.Group)
	own.setCountOrNone(&c.warm_up, "warm_up", p.WarmUp)
	own.setCount(&c.segment, "segment", p.Segment)
	own.setCount(&c.gradient_groups, "gradient_groups", p.GradientGroups)
	own.setCount(&c.tensor, "tensor", p.Tensor)
	if p.Split != 0 {
		c.split = C.weft_split(p.Split)
	}
	if p.Steps != 0 {
		c.step_kinds = C.uint32_t(p.Steps)
	}
	c.seed, c.memory_limit, c.vertical_sync = C.uint64_t(p.Seed), C.uint64_t(p.MemoryLimit), flag(p.VerticalSync)
	c.link_latency_ns, c.link_bandwidth = C.int64_t(p.LinkLatency), C.double(p.LinkBandwidth)
}
