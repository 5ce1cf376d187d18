"""Layers compiled in place: one graph for layers that are alike, and what breaks one is named."""

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from specc.runtime.compile import compile_layers


class Scaled(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 1.5))
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.number


class Printing(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x) * 2

    def helper(self, x: Tensor) -> Tensor:
        print("a graph ends here")
        return x


class Deciding(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum().item() > 0 else -x  # reads a value


def graphs_of(layers: list[Scaled]) -> int:
    torch._dynamo.reset()
    counters.clear()
    names = [list(layer.state_dict()) for layer in layers]
    compile_layers(layers, backend="aot_eager")
    assert [list(layer.state_dict()) for layer in layers] == names
    x = torch.ones(3, requires_grad=True)
    for layer in layers:
        x = layer(x)
    assert not counters["graph_break"]
    count: int = counters["stats"]["unique_graphs"]
    return count


def test_layers_that_are_alike_share_a_graph() -> None:
    assert graphs_of([Scaled(1) for _ in range(20)]) == 1


def test_layers_that_differ_in_a_number_may_be_many() -> None:
    """Each has a graph of its own, and torch's own limit is 8."""
    assert graphs_of([Scaled(number) for number in range(12)]) == 12


@pytest.mark.parametrize(
    ("kind", "line"), [(Printing, 'print("a graph ends here")'), (Deciding, "return x if x.sum()")]
)
def test_a_graph_break_is_named_by_its_line(kind: type[Scaled], line: str) -> None:
    layer = kind(1)
    compile_layers([layer], backend="aot_eager")
    with pytest.raises(ValueError) as error:
        layer(torch.ones(3))
    said = str(error.value)
    assert said.startswith(f"{kind.__name__} cannot be compiled as one graph at {__file__}:")
    assert line in said and said.endswith("or train without compiling")


def test_another_mistake_of_a_layer_stays_what_it_is() -> None:
    layer = Scaled(1)
    compile_layers([layer], backend="aot_eager")
    with pytest.raises((RuntimeError, TypeError)):
        layer(torch.ones(3), torch.ones(3))
