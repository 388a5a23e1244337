"""Plans, predictions, profiles and clusters."""
import ctypes
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from . import _raw, timeline
from ._core import Config, Object, check, encode, expect, filled, listed, new, options_of, text_of
from ._types import (Candidate, LinkPrediction, MemoryKind, NodeTimes, PlanInfo, PlanOptions, PredictFlags, PredictionInfo, ProfileOptions, RankPrediction,
                     RunOptions, ScheduleInfo, StepKinds, StepMode)
from .model import Model
from .optimizer import Optimizer, ParameterGroup

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .run import Run

Path = Union[str, "os.PathLike[str]"]


class Profile(Object):
    """Measured times of the kernels of each node of a model."""

    def __init__(self, model: Model, **options: "Unpack[ProfileOptions]") -> None:
        config = Config("weft_profile_config", options)
        super().__init__(_made(model, _raw.weft_profile_new, config.pointer), _raw.weft_profile_free)

    @classmethod
    def load(cls, path: Path) -> "Profile":
        return cls._of(new(_raw.weft_profile_load, encode(path)))

    @classmethod
    def _of(cls, pointer: Any) -> "Profile":
        out = cls.__new__(cls)
        Object.__init__(out, pointer, _raw.weft_profile_free)
        return out

    def save(self, path: Path) -> None:
        check(_raw.weft_profile_save, self._ptr, encode(path))

    @property
    def nodes(self) -> List[NodeTimes]:
        return listed(_raw.weft_node_times, _raw.weft_profile_node, self._ptr)


class Cluster(Object):
    """A description of machines and links, from a file that weft-plan(1) describes."""

    def __init__(self, path: Path) -> None:
        super().__init__(new(_raw.weft_cluster_load, encode(path)), _raw.weft_cluster_free)

    @property
    def ranks(self) -> int:
        return int(_raw.weft_cluster_ranks(self._ptr))


class Plan(Object):
    """Stages, schedule and memory layout of a step; see PlanOptions for the options.

    >>> model = Model()
    >>> x, y = model.input("x", (8,)), model.input("y", (1,))
    >>> loss = x.linear(8).relu().linear(1).mse(y)
    >>> plan = Plan(model, ranks=2, micro_batches=4)
    >>> print(plan.timetable())
    0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
    1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
    """

    def __init__(self, model: Model, **options: "Unpack[PlanOptions]") -> None:
        config = Config("weft_plan_config", options)
        self._adopt(model, _made(model, _raw.weft_plan_new, config.pointer))

    @classmethod
    def load(cls, model: Model, path: Path) -> "Plan":
        """The plan of a file of save(), for the same model."""
        out = cls.__new__(cls)
        out._adopt(model, _made(model, _raw.weft_plan_load, encode(path)))
        return out

    def _adopt(self, model: Model, pointer: int) -> None:
        super().__init__(pointer, _raw.weft_plan_free, model._ops)
        self._ops = model._ops
        self.inputs = model.inputs
        self.outputs = model.outputs
        self._shapes = {item.name: item.shape for item in model.parameters}
        self._kinds = StepKinds(self.settings()["step_kinds"])

    def _delivers(self, mode: StepMode) -> bool:
        """Whether such steps have outputs."""
        outputs = {StepMode.TRAIN: StepKinds.TRAIN_OUTPUTS, StepMode.NO_UPDATE: StepKinds.TRAIN_OUTPUTS, StepMode.EVAL: StepKinds.EVAL_OUTPUTS}
        return mode == StepMode.FORWARD or bool(self._kinds & outputs.get(mode, StepKinds(0)))

    def save(self, path: Path) -> None:
        """Writes the plan as JSON."""
        check(_raw.weft_plan_save, self._ptr, encode(path))

    @property
    def info(self) -> PlanInfo:
        out: PlanInfo = filled(_raw.weft_plan_info, _raw.weft_plan_describe, self._ptr)
        return out

    def settings(self) -> Dict[str, Any]:
        """Options of Plan() that make the same plan, if no link had a latency."""
        config, pointer = _raw.weft_plan_config(ctypes.sizeof(_raw.weft_plan_config)), self._ptr
        check(lambda out, _: _raw.weft_plan_settings(pointer, out), ctypes.byref(config))
        out = options_of(config)
        out["cuts"] = [config.cuts[i].decode() for i in range(config.n_cuts)]
        out["axes"] = {config.axes[i].name.decode(): config.axes[i].size for i in range(config.n_axes)}
        out["groups"] = [ParameterGroup._of(config.groups[i]) for i in range(config.n_groups)]
        out["optimizer"] = Optimizer._of(config.optimizer.contents)
        return out

    @property
    def stages(self) -> int:
        return int(_raw.weft_plan_stages(self._ptr))

    def first(self, stage: int) -> Optional[str]:
        """The name of the first node of a stage."""
        name = _raw.weft_plan_first(self._ptr, stage)
        return None if name is None else str(name.decode())

    def rank(self, stage: int) -> int:
        """The first rank that hosts a stage."""
        return int(_raw.weft_plan_rank(self._ptr, stage))

    def replicas(self, stage: int) -> int:
        """The number of ranks that have the same part of a stage."""
        return int(_raw.weft_plan_replicas(self._ptr, stage))

    def bytes(self, rank: int) -> int:
        """Bytes of the tensors of a rank."""
        return int(_raw.weft_plan_bytes(self._ptr, rank))

    def memory(self, rank: int) -> Dict[str, int]:
        """Bytes of the tensors of a rank, by their kind."""
        return {kind.name.lower(): int(_raw.weft_plan_memory(self._ptr, rank, kind)) for kind in MemoryKind}

    def owned(self, rank: int) -> int:
        """The number of elements of the parameters that a rank owns."""
        return int(_raw.weft_plan_owned(self._ptr, rank))

    def resident(self, rank: int) -> int:
        """The number of elements of the parameters that a rank holds: its own, and copies of tied ones."""
        return int(_raw.weft_plan_resident(self._ptr, rank))

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return float(_raw.weft_plan_rate(self._ptr, step))

    @property
    def updates(self) -> int:
        """The maximum number of updates of a training step."""
        return int(_raw.weft_plan_updates(self._ptr))

    @property
    def noam(self) -> int:
        """Minibatches in progress that suit an asynchronous schedule; 0 if it is synchronous."""
        return int(_raw.weft_plan_noam(self._ptr))

    def versions(self, rank: int) -> int:
        """Versions of its weights that a rank keeps."""
        return int(_raw.weft_plan_versions(self._ptr, rank))

    def timetable(self) -> str:
        """The schedule of training steps: one row per rank of a pipeline."""
        return text_of(_raw.weft_plan_timetable, self._ptr).rstrip("\n")

    def predict(self) -> "Prediction":
        """Simulates a step. In Jupyter the result is a picture of the timeline."""
        return Prediction(self)

    def run(self, **options: "Unpack[RunOptions]") -> "Run":
        """Starts a run in this process; see Run for runs over processes."""
        from .run import Run
        return Run(self, **options)

    def __repr__(self) -> str:
        if self.closed:
            return "<Plan, closed>"
        info = self.info
        return f"<Plan of {info.ranks} ranks, {info.stages} stages, schedule {info.schedule}, {info.micro_batches} micro-batches>"


def _made(model: Model, function: Any, *arguments: Any) -> int:
    """What a function makes of a model."""
    out = ctypes.c_void_p()
    expect(model, Model, "model")._call(function, *arguments, ctypes.byref(out))
    assert out.value is not None
    return out.value


class Prediction(Object):
    """A simulated step of a plan."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(new(_raw.weft_plan_simulate, expect(plan, Plan, "plan")._ptr, PredictFlags.TIMELINE), _raw.weft_prediction_free)
        self.info: PredictionInfo = filled(_raw.weft_prediction_info, _raw.weft_prediction_describe, self._ptr)
        self._name = plan.info.schedule or ""

    @property
    def ranks(self) -> List[RankPrediction]:
        return listed(_raw.weft_rank_prediction, _raw.weft_prediction_rank, self._ptr)

    @property
    def links(self) -> List[LinkPrediction]:
        return listed(_raw.weft_link_prediction, _raw.weft_prediction_link, self._ptr)

    def save_trace(self, path: Path) -> None:
        """Writes the timeline as a Chrome trace, for Perfetto."""
        check(_raw.weft_prediction_save_trace, self._ptr, encode(path))

    def trace(self) -> Dict[str, Any]:
        """The timeline as the content of a Chrome trace."""
        return _trace_of(self.save_trace)

    def _repr_svg_(self) -> str:
        return timeline.picture([(f"{self._name}, predicted", self.trace())])

    def __repr__(self) -> str:
        return f"<Prediction: {self.info.step_seconds:.3g} s per step, idle {100 * self.info.idle:.1f} %, {self.info.peak_bytes} bytes>"


def _trace_of(save: Any) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = os.path.join(folder, "trace.json")
        save(path)
        with open(path, encoding="utf-8") as file:
            out: Dict[str, Any] = json.load(file)
            return out


def compare(model: Model, **options: "Unpack[PlanOptions]") -> List[Candidate]:
    """Plans and simulates a step for each candidate that the options allow, for example with schedule "auto"."""
    config = Config("weft_plan_config", options)
    with Object(_made(model, _raw.weft_plan_compare, config.pointer), _raw.weft_comparison_free) as comparison:
        return listed(_raw.weft_candidate, _raw.weft_comparison_row, comparison._ptr)


def schedules() -> List[ScheduleInfo]:
    """All schedules."""
    return listed(_raw.weft_schedule_info, lambda _, index, out: _raw.weft_schedule_describe(index, out), 0)
