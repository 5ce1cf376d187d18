"""The small copy of a page that `specc verify` runs, and the step that it takes in one process."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .layouts import Degrees
from .mesh import Mesh
from .one_step import Case, Shape, alone, rounding
from .page import Number, Page
from .reduced import LENGTH, narrow_only, small
from .refusal import Refusal
from .trainer import has_routers, takes_documents
from .verify_worker import Alone, cases, reference

LIMIT = 30_000_000  # parameters of a copy: a step at a layout takes seconds above


@dataclass(frozen=True)
class Copy:
    """A copy of a page that runs in one process, and its steps there, by ``reference``.

    ``config`` is None where the page has none. ``routed``: whether its tokens go to experts.
    """

    config: Any
    whole: Any
    shape: Shape
    steps: Mapping[Case, Alone]
    routed: bool = False

    @property
    def described(self) -> str:
        """The numbers that are other ones than the page's."""
        other = [f"{n}={v!r}" for n, v in changed(self.whole, self.config).items()]
        return f"a copy with {', '.join(other)}" if other else "as it stands"


def changed(old: Any, new: Any) -> dict[str, Any]:
    """The fields of a config that are not another's."""
    before = Page.values(old)
    return {name: value for name, value in Page.values(new).items() if value != before[name]}


def reduced(page: Page, layouts: Sequence[Degrees], changes: Mapping[str, Number]) -> Copy:
    """The smallest copy of the page that takes a step in one process; ``changes`` are kept in it.

    Raises Refusal where none does, with what each one that was tried said.
    """
    whole = page.config(changes)
    cut = math.lcm(*map(_pieces, layouts))
    length = -(-LENGTH // cut) * cut
    sequences = math.lcm(8, *(2 * degrees.dp * degrees.pp for degrees in layouts))
    refused: list[str] = []
    for config in _smaller(whole, layouts, length, changes, refused):
        try:
            built = page.build(Mesh.single(), config, device="meta")
            count = sum(p.numel() for p in built.parameters())
            if count > LIMIT:
                refused.append(f"{count:,} parameters are more than {LIMIT:,}")
                continue
            most = getattr(config, "max_position_embeddings", length)
            shape = Shape(sequences, min(length, most))
            packed, routed = takes_documents(built), has_routers(built)
            needed = [
                reference(case, routed=routed)
                for degrees in layouts
                for case in cases(degrees, page.loss, packed=packed)
            ]
            steps = {
                case: _alone(page, config, case, shape, routed) for case in dict.fromkeys(needed)
            }
        except Exception as error:  # whatever the page's classes say of numbers that are not theirs
            refused.append(_reason(error))
            continue
        return Copy(config, whole, shape, steps, routed)
    raise Refusal(
        f"No copy of {page.path} that is small enough could be run in one process "
        f"({'; '.join(dict.fromkeys(refused))}): give numbers that make one, as in "
        "--set num_layers=2."
    )


def _alone(page: Page, config: Any, case: Case, shape: Shape, routed: bool) -> Alone:
    values, step = alone(page, config, case, shape, Mesh.single())
    # What is zero but for rounding is told by other parts of the batch, of which routers are a
    # function.
    sizes = {} if routed else rounding(page, config, case, shape, values, step)
    return Alone(values, step, sizes)


def _pieces(degrees: Degrees) -> int:
    """What has to divide a sequence: zigzag pieces over cp, and what sequence parallel cuts."""
    zigzag = 2 * degrees.cp if degrees.cp > 1 else 1
    return math.lcm(zigzag, degrees.cp * (degrees.tp if degrees.sequence_parallel else 1))


def _smaller(
    whole: Any,
    layouts: Sequence[Degrees],
    length: int,
    changes: Mapping[str, Number],
    refused: list[str],
) -> Iterator[Any]:
    """Configs to try, the smallest first: all sizes small, widths as they are, the page's own.

    Why one cannot be is added to ``refused``.
    """
    if whole is None:
        yield None
        return
    # Heads are dealt out over tp, and over cp too where attention exchanges them for positions.
    parts = math.lcm(1, *(d.tp * (d.cp if d.cp_comm_type == "a2a" else 1) for d in layouts))
    least = max(degrees.stages for degrees in layouts)  # each needs a layer
    tried = []
    ways: tuple[Callable[[], Any], ...] = (
        lambda: small([whole], layers=True, parts=parts, least=least)[0],
        lambda: narrow_only([whole], layers=True, least=least)[0],
        lambda: whole,
    )
    for shrink in ways:
        try:
            config = dataclasses.replace(shrink(), **changes)
            most = getattr(whole, "max_position_embeddings", None)
            if isinstance(most, int) and "max_position_embeddings" not in changes:
                config = dataclasses.replace(config, max_position_embeddings=min(most, length))
            config = _without_draws(config)
        except Exception as error:  # the config's own rules
            refused.append(_reason(error))
            continue
        if config not in tried:
            tried.append(config)
            yield config


def _reason(error: Exception) -> str:
    """What a layer said, without what is said around it, in a line."""
    lines = str(error.__cause__ or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _without_draws(config: Any) -> Any:
    """Attention's dropout draws from torch's generator, and not the same at another layout.

    A probability of 1e-30 drops nothing, and is above 0 where the page was written for that.
    """
    given = getattr(config, "attention_dropout", 0.0)
    return dataclasses.replace(config, attention_dropout=1e-30) if given > 0 else config
