/*
Package weft trains and runs neural networks in parallel across threads, processes and machines, with the same bits however the work is
split. It binds the C library libweft, which pkg-config finds, and needs cgo.

The objects, in the order in which a program creates them:

	Model   a graph of ops over named parameters
	Plan    partition, schedule and memory layout of a step; checked before anything runs
	Mesh    the processes of a run; without one, this process hosts all ranks
	Run     a plan being executed
	Tensor  a dense array in memory of the library, which Go sees as a slice

The names are those of the C interface without "weft_", so its man pages apply: [NewPlan] is weft_plan_new(3), and the fields of
[PlanConfig] are those of weft_plan_config.

# Configurations

The zero value of a configuration is the default, and so is a field that is 0, "" or nil. If the default of a number is not 0, [None]
means 0: Optimizer{Clip: None} does not clip gradients. A temperature of 0 is common, so SequenceConfig.Temperature is a pointer, and nil is the
default.

# Errors

Every error of the library is an [*Error]. errors.Is compares its status, and the error that an op, Choose or a context returned:

	errors.Is(err, weft.EPEER)          // a rank was lost
	errors.Is(err, context.Canceled)    // ctx ended the call

# Lifetime

Close frees an object. It may be called several times, on nil, and from any goroutine. Methods of a closed object return an error, and
so does a call whose configuration has one. A [Tensor] requires Close, because a slice of its memory may outlive it. All other objects
are also freed when the garbage collector finds them unreachable, but a mesh of [Spawn] not before its processes have ended.

# Goroutines

Methods may be called from several goroutines. Those of [Model] take turns, so that several goroutines that add nodes make a model whose
order is that of their calls. A call that waits for a run does not block a thread of the operating system. In a run with Threads 0, it computes
instead, and returns after the current job if its context ends: services use 1 thread or more.
*/
package weft
