package weft

/*
#include <weft.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// settingsOf is the inverse of PlanConfig.fill, for a configuration that the library has filled.
func settingsOf(c *C.weft_plan_config) PlanConfig {
	var d C.weft_plan_config
	C.weft_plan_config_init(&d, C.sizeof_weft_plan_config)
	out := PlanConfig{
		Ranks: fromCount(c.ranks, d.ranks), MicroBatches: fromCount(c.micro_batches, d.micro_batches),
		MicroBatchSize: fromCount(c.micro_batch_size, d.micro_batch_size), ShortSize: fromCount(c.short_size, d.short_size),
		Split: Split(c.split), Schedule: C.GoString(c.schedule), Steps: StepKinds(c.step_kinds), Seed: uint64(c.seed),
		Optimizer: optimizerOf(c.optimizer), Chunks: fromCount(c.chunks, d.chunks), Group: fromCount(c.group, d.group),
		WarmUp: fromCount(c.warm_up, d.warm_up), Segment: fromCount(c.segment, d.segment), ScheduleText: C.GoString(c.schedule_text),
		Recompute: C.GoString(c.recompute), MemoryLimit: uint64(c.memory_limit), SplitType: C.GoString(c.split_type),
		LinkLatency: time.Duration(c.link_latency_ns), LinkBandwidth: float64(c.link_bandwidth), VerticalSync: c.vertical_sync != 0,
		GradientGroups: fromCount(c.gradient_groups, d.gradient_groups), Tensor: fromCount(c.tensor, d.tensor), Shard: C.GoString(c.shard),
		StageReplicas: C.GoString(c.stage_replicas), Precision: C.GoString(c.precision), F32Nodes: C.GoString(c.f32_nodes),
	}
	for _, cut := range unsafe.Slice(c.cuts, c.n_cuts) {
		out.Cuts = append(out.Cuts, C.GoString(cut))
	}
	for _, axis := range unsafe.Slice(c.axes, c.n_axes) {
		out.Axes = append(out.Axes, Axis{C.GoString(axis.name), int(axis.size)})
	}
	for _, group := range unsafe.Slice(c.groups, c.n_groups) {
		out.Groups = append(out.Groups, groupOf(group))
	}
	return out
}

func optimizerOf(c *C.weft_optimizer) Optimizer {
	var d C.weft_optimizer
	C.weft_optimizer_init(&d, C.sizeof_weft_optimizer)
	return Optimizer{
		Rule: Rule(c.rule), Rate: fromNumber(c.rate, d.rate), Momentum: fromNumber(c.momentum, d.momentum), Beta1: fromNumber(c.beta1, d.beta1),
		Beta2: fromNumber(c.beta2, d.beta2), Eps: fromNumber(c.eps, d.eps), WeightDecay: fromNumber(c.weight_decay, d.weight_decay),
		Clip: fromNumber(c.clip, d.clip), Curve: Curve(c.curve), DecayAll: c.decay_all != 0, Warmup: uint64(c.warmup), Total: uint64(c.total),
		MinRate: fromNumber(c.min_rate, d.min_rate),
	}
}

func groupOf(c C.weft_parameter_group) ParameterGroup {
	var d C.weft_parameter_group
	C.weft_parameter_group_init(&d, C.sizeof_weft_parameter_group)
	return ParameterGroup{
		Pattern: C.GoString(c.pattern), Frozen: c.frozen != 0, RateFactor: fromNumber(c.rate_factor, d.rate_factor),
		WeightDecayFactor: fromNumber(c.weight_decay_factor, d.weight_decay_factor),
	}
}

// fromCount is the inverse of setCountOrNone.
func fromCount(n, byDefault C.uint32_t) int {
	if n == 0 && byDefault != 0 {
		return noCount
	}
	return int(n)
}

// fromNumber is the inverse of setNumber.
func fromNumber(x, byDefault C.double) float64 {
	if x == 0 && byDefault != 0 {
		return None
	}
	return float64(x)
}
