"""What is asked before a model is loaded: do these tensors fit its config, and how many bytes will it take?

Nothing is allocated or read: networks are filled with placeholders of the tensors' shapes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.blocks.stored import unfolded
from runtime.cache.layout import LayerSpec
from runtime.device import Device
from runtime.errors import WeightMismatch
from runtime.loading.plan import LoadPlan, fit_network, float_of, head_layout, plan_for, wanted_dtype
from runtime.loading.step_demand import StepDemand, step_demand
from runtime.models.registry.described import Described, describe
from runtime.nn.operations import ops
from runtime.nn.weights.act_order import take_orders
from runtime.records import dataclass
from runtime.streams import on_own_thread
from runtime.weights.files import DTYPES, dtype_problems
from runtime.weights.fit import width_problems


def check_weights(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    widths: Mapping[str, int] | None = None,
) -> list[str]:
    """What is wrong with these tensors for this config: one sentence each, [] when they fit.

    tensors: name -> (safetensors dtype name, shape), exactly as stored. widths: the lengths of rows of packed
    matrices by config.json's description of them, which other programs go by; they are compared with the
    shapes. Nothing is allocated or read. Raises UnsupportedModel when the config itself cannot be run.
    """
    described = describe(config)
    odd = dtype_problems(tensors)
    if odd:
        return odd

    def problems() -> list[str]:
        placeholders = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
        try:
            opened = unfolded(placeholders, config, floats="none").weights
            take_orders(opened)
            network, _ = fit_network(described, config, opened)
        except WeightMismatch as mismatch:
            return mismatch.problems
        return width_problems(network, widths or {})

    return on_own_thread(problems)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a loaded model will take."""

    described: Described
    """What the config says."""
    weight_bytes: int
    """Of the weights, as they will be held."""
    element_bytes: int
    """Of one activation, and so of one number of keys and values unless another format is asked for."""
    head_bytes: int = 0
    """Of the draft head's weights, as they will be held."""
    head_layout: tuple[LayerSpec, ...] = ()
    """What the draft head's layers remember; () for no head."""
    step: StepDemand = StepDemand()
    """What a step of the model works with."""


def foresee(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    on: Device | None = None,
    with_head: bool = False,
) -> Demand:
    """What `load_model` will hold of these tensors, given as in `check_weights`. Nothing is allocated or
    read. Raises WeightMismatch, UnsupportedModel.
    """
    described = describe(config)
    odd = dtype_problems(tensors)
    if odd:
        raise WeightMismatch(odd)

    def demand() -> Demand:
        stored = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
        plan = plan_for(described, config, stored, on, with_head=with_head)
        return demand_of(described, plan, wanted_dtype(on) or float_of(stored))

    return on_own_thread(demand)


def demand_of(described: Described, plan: LoadPlan, dtype: mx.Dtype) -> Demand:
    """What is taken by a network of activations of this `dtype`, held as planned."""
    step = step_demand(
        plan.parts[0][0],
        described.layout,
        described.hidden_size,
        dtype.size,
        by_kernels=ops.by_kernels("linear"),
    )
    target = Demand(described, plan.sizes[0], dtype.size, step=step)
    if len(plan.parts) == 1:
        return target
    return replace(target, head_bytes=plan.sizes[1], head_layout=head_layout(described))
