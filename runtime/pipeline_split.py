"""A stage's backward in two halves: what the stage before waits for, and what can wait.

Zero-bubble schedules (arXiv 2401.10241) fill idle times with the second. Which nodes of the graph
belong to which half is found as ``torch.distributed.pipelining`` finds it; the halves are run here,
as torch 2.11 adds up wrongly behind a node of several outputs, and torch's second half walks the
way to the input once more where a weight is reached from it at two places. A node that gives
gradients of an input and of a weight at once (a function of ours, one of torch.compile) runs in
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, Node

from .data_parallel import accumulate
from .sharded import as_sharded
from .sharded_groups import sharded_groups

Gradients = tuple[Tensor | None, ...]


Branch = tuple[Node, int]  # a node, and which of its inputs


@dataclass
class WeightHalf:
    """What is left of one backward: for each group of weights (their accumulating nodes) the nodes
    at which the way to them leaves the way to the input, and the gradients that came there.
    ``branches``: for each of those nodes where its gradients go, None along the way to the input.
    """

    groups: list[tuple[list[Node], list[Node]]]
    arrived: dict[Node, Gradients]
    branches: dict[Node, list[Branch | None]]
    graph: Tensor | None = None  # what keeps it alive, where the nodes do not

    def run(self) -> Iterable[tuple[Node, Tensor]]:
        """Each weight's accumulating node and gradient. Gives up the graph."""
        while self.groups:
            weights, nodes = self.groups.pop()
            starts = [
                (GradientEdge(*branch), gradient)
                for node in nodes
                if node in self.arrived
                for branch, gradient in zip(
                    self.branches.pop(node), _applied(node, self.arrived.pop(node)), strict=True
                )
                if branch is not None and gradient is not None
            ]
            if not starts:
                continue
            yield from (
                (weight, gradient)
                for weight, gradient in zip(weights, _gradients(starts, weights), strict=True)
                if gradient is not None
            )
        self.graph = None


@torch.no_grad()
def _applied(node: Node, gradients: Gradients) -> Sequence[Tensor | None]:
    """The gradient that a node hands to each of its ``next_functions``; its graph is kept."""
    if not isinstance(node, BackwardCFunction):
        found: Any = node(*gradients)  # type: ignore[operator]  # torch leaves it unsaid
        return found if isinstance(found, tuple) else (found,)
    found = node.apply(*gradients)
    found = found if isinstance(found, tuple) else (found,)
    # Of each argument of the forward; next_functions are of its tensors alone.
    wanted = iter(g for g, needed in zip(found, node.needs_input_grad, strict=False) if needed)
    return [None if after is None else next(wanted) for after, _ in node.next_functions]


def _disjoint(groups: Iterable[tuple[set[Node], set[Node]]]) -> list[tuple[list[Node], list[Node]]]:
    """Weights and nodes, groups with a node in common joined: torch leaves such groups, and what
    comes to a node can be given out once."""
    joined: list[tuple[set[Node], set[Node]]] = []
    for weights, nodes in groups:
        apart = []
        for group in joined:
            if nodes.isdisjoint(group[1]):
                apart.append(group)
            else:
                weights, nodes = weights | group[0], nodes | group[1]
        joined = [*apart, (weights, nodes)]
    return [(list(weights), list(nodes)) for weights, nodes in joined]


def _leading_to(node: Node, consumers: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Every node from which this one is reached."""
    found, pending = {node}, [node]
    while pending:
        for consumer in consumers.get(pending.pop(), ()):
            if consumer not in found:
                found.add(consumer)
                pending.append(consumer)
    return found


def input_half(
    output: Tensor, gradient: Tensor | None, hidden: Tensor, weights: Sequence[nn.Parameter]
) -> tuple[Tensor | None, WeightHalf]:
    """The gradient of ``hidden``, and what is left: the weights'. ``gradient``: of the output,
    None where that is a loss."""
    from torch.distributed.pipelining import _backward

    node_of: Any = _backward._get_grad_fn_or_grad_acc
    reverse: Any = _backward.construct_reverse_graph
    grouped: Any = _backward.get_param_groups
    edges = reverse([node_of(output)])
    found = grouped([node_of(hidden)], [node_of(weight) for weight in weights], edges)
    groups = _disjoint([(group["params"], group["intermediates"]) for group in found])
    way = _leading_to(node_of(hidden), edges)
    branches: dict[Node, list[Branch | None]] = {
        node: [
            None if after is None or after in way else (after, index)
            for after, index in node.next_functions
        ]
        for _, nodes in groups
        for node in nodes
    }
    arrived: dict[Node, Gradients] = {}
    notes = [
        node.register_prehook(lambda given, node=node: arrived.__setitem__(node, given))
        for _, nodes in groups
        for node in nodes
    ]
    try:
        (wanted,) = torch.autograd.grad(
            output, hidden, gradient, retain_graph=True, allow_unused=True
        )
    finally:
        for note in notes:
            note.remove()
    if any(isinstance(node, BackwardCFunction) for _, nodes in groups for node in nodes):
        half = WeightHalf(groups, arrived, branches, output)
        return wanted, half  # such a node does not own itself
    output.detach_()  # so that what only the first half read is given up
    return wanted, WeightHalf(groups, arrived, branches)


def _gradients(starts: Sequence[tuple[GradientEdge, Tensor]], weights: Sequence[Node]) -> Gradients:
    """As ``torch.autograd.grad``, which on torch 2.11 cannot start at a node of ours."""
    run: Any = torch.autograd.graph._engine_run_backward
    edges, gradients = zip(*starts, strict=True)
    ends = tuple(GradientEdge(weight, 0) for weight in weights)
    # retain_graph and create_graph, then allow_unreachable, which is allow_unused too
    found: Gradients = run(edges, gradients, False, False, ends, True, accumulate_grad=False)
    return found


class SplitBackward:
    """The backwards of one stage's step. ``first``: it has no stage before it."""

    def __init__(self, model: nn.Module, *, first: bool) -> None:
        self._model = model
        self._first = first
        self._sharded = sharded_groups(model) is not None
        self._halves: dict[int, WeightHalf] = {}  # by micro-batch
        self._whole: dict[int, tuple[Tensor, Tensor | None]] = {}  # of the first stage: all of it
        self._sums: dict[nn.Parameter, Tensor] = {}

    def input(
        self, number: int, output: Tensor, gradient: Tensor | None, hidden: Tensor | None
    ) -> Tensor | None:
        """The gradient of ``hidden``; those of the weights are left for ``weight``."""
        if hidden is None:
            self._whole[number] = (output, gradient)
            return None
        found, self._halves[number] = input_half(output, gradient, hidden, self._weights())
        return found

    def weight(self, number: int) -> None:
        """Adds the gradients of the weights that ``input`` left of this micro-batch."""
        if self._first:
            torch.autograd.backward(*self._whole.pop(number))
            for parameter in self._weights() if self._sharded else ():
                if parameter.grad is not None and as_sharded(parameter) is None:
                    gradient, parameter.grad = parameter.grad, None
                    self._add(parameter, gradient)
            return
        for node, gradient in self._halves.pop(number).run():
            self._add(node.variable, gradient)  # type: ignore[attr-defined]

    @torch.no_grad()
    def finish(self) -> None:
        """After the last ``weight`` of a step: FSDP reduces, which it could not do before."""
        for parameter, total in self._sums.items():
            if parameter.dtype != total.dtype:
                parameter.grad_dtype = total.dtype
            parameter.grad = total if parameter.grad is None else parameter.grad.add_(total)
        self._sums.clear()
        groups = sharded_groups(self._model)
        if groups is None:
            return
        accumulate(self._model, last=True)
        groups.finish()
        from torch.distributed.pipelining.stage import _PipelineStageBase

        reduce: Any = _PipelineStageBase.perform_reduce_grad  # its stage's model is all it asks for
        reduce(SimpleNamespace(submod=self._model), 1)

    def _weights(self) -> list[nn.Parameter]:
        return [p for p in self._model.parameters() if p.requires_grad]

    @torch.no_grad()
    def _add(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """In float32, as FSDP adds up: gathered weights may be bfloat16, and so are gradients."""
        total = self._sums.get(parameter)
        if total is None:
            # A copy: the gradient may be another tensor's memory, or one number many times.
            dtype = torch.float32 if self._sharded else parameter.dtype
            self._sums[parameter] = torch.empty_like(parameter, dtype=dtype).copy_(gradient)
        else:
            total.add_(gradient)
