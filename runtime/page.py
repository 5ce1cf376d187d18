"""A page as a program sees it: a file loaded as a module, and what the trainer needs of it."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from .creation_log import ConstructorError
from .materialize import materialize
from .mesh import Mesh
from .pipeline_cut import CutPlaces, Stages, keep_stage
from .refusal import Refusal
from .stage_parts import PAGE_LAYERS

LOSSES = ("per_token", "local_mean")  # what a rank's output can be summed from
_HEADER = re.compile(r"^# spec (\w+) · library (\w+) · body (\w+)", re.MULTILINE)

Number = int | float


@dataclass(frozen=True)
class Page:
    """A loaded page.

    ``body`` is the hash by which a checkpoint knows its page: that of the header, or of the whole
    text where a page has none. ``loss`` is the page's ``LOSS``, None where it states none.
    ``layers``: the lists of layers that it names in LAYERS. ``cut_places``: also its FIRST_STAGE
    and LAST_STAGE; None where it cannot be cut into stages, and ``no_stages`` says why.
    """

    path: Path
    body: str
    loss: str | None
    build_model: Callable[..., nn.Module]
    config_class: type[Any] | None
    layers: tuple[str, ...] | None = None
    cut_places: CutPlaces | None = None
    no_stages: str | None = None

    def check_stages(self) -> CutPlaces:
        """Where stages begin and end. Raises Refusal where the page cannot be cut into any."""
        if self.cut_places is not None:
            return self.cut_places
        reason = self.no_stages or (
            "it does not name LAYERS, FIRST_STAGE and LAST_STAGE, as `specc compile` does where it "
            "can"
        )
        raise Refusal(f"{self.path} cannot be cut into the stages of a pipeline: {reason}")

    def config(self, changes: Mapping[str, Number] | None = None) -> Any:
        """The page's ``Config``, or a copy of it with other numbers; None where it has none.

        Raises Refusal where a field is missing or holds no number, or ``Config`` itself refuses.
        """
        if self.config_class is None:
            if changes:
                raise Refusal(
                    f"{self.path} has no Config, so --set {next(iter(changes))} has no use."
                )
            return None
        config = self.config_class()
        values = self.values(config)
        for name, value in (changes or {}).items():
            if name not in values:
                near = difflib.get_close_matches(name, values, 1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(values)}."
                raise Refusal(f"The Config of {self.path} has no field {name}; {hint}")
            now = values[name]
            if isinstance(now, bool) or not isinstance(now, int | float):
                raise Refusal(f"--set changes numbers only, and {name} is {now!r} in {self.path}.")
            if isinstance(now, int) and not isinstance(value, int):
                raise Refusal(
                    f"{name} is the integer {now} in {self.path}, and --set gives {value}."
                )
        try:
            return dataclasses.replace(config, **(changes or {}))
        except (AssertionError, ValueError) as error:
            raise Refusal(f"The Config of {self.path} refuses these values: {error}") from None

    @staticmethod
    def values(config: Any) -> dict[str, Any]:
        """The fields of a config by name."""
        return (
            {}
            if config is None
            else {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        )

    def build(
        self,
        mesh: Mesh,
        config: Any,
        *,
        seed: int = 0,
        device: str = "cpu",
        wrap: Callable[[nn.Module], None] | None = None,
        stages: Stages | None = None,
    ) -> nn.Module:
        """The page's model with its initial values; ``wrap`` (compile, shard) comes before them.

        ``stages``: of these, it is ``mesh.stage`` only.
        Raises Refusal with the layers' own sentence where the mesh does not divide the model, and
        where ``forward`` does not take what the trainer hands it.
        """
        args = () if config is None else (config,)
        places = self.check_stages() if stages is not None else None

        def shape(model: nn.Module) -> None:
            if self.layers is not None:
                model.__dict__[PAGE_LAYERS] = self.layers
            if stages is not None and places is not None:
                keep_stage(model, places, stages, mesh)
            if wrap is not None:
                wrap(model)

        try:
            # A build inside a build hands over the model as its constructors left it, so that wrap
            # sees it before any value is filled in.
            model = materialize(
                lambda: self.build_model(mesh, *args, seed=seed, device=device),
                mesh,
                seed=seed,
                device=device,
                wrap=shape,
            )
        except (ValueError, NotImplementedError, ConstructorError) as error:
            cuts = [
                f"{axis.name} {axis.size}" for axis in (mesh.tp, mesh.cp, mesh.pp) if axis.size > 1
            ]
            at = f" with {' x '.join(cuts)}" if cuts else ""
            raise Refusal(f"{self.path} cannot be built{at}: {error}") from error
        taken = inspect.signature(model.forward).parameters
        any_name = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        needed = ("input_ids", "labels") if stages is None else ("input_ids", "labels", "hidden")
        missing = [name for name in needed if name not in taken and not any_name]
        if missing:
            raise Refusal(
                f"forward of {type(model).__name__} in {self.path} takes ({', '.join(taken)}) and "
                f"no {' and no '.join(missing)}; it is called with {' and '.join(needed)}."
            )
        return model


def layers_sentence(error: Exception) -> str | None:
    """What one of our layers said where it raised this error; None where another's code did."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    name = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))
    return str(error) if name.startswith(f"{__package__}.") else None


def load_page(path: str | Path) -> Page:
    """Run the page's file as a module of its own. Raises Refusal where it is no page."""
    path = Path(path)
    if not path.is_file():
        raise Refusal(f"There is no page {path}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"The page {path} cannot be read: {error}.") from None
    header = _HEADER.search(text)
    body = header[3] if header else hashlib.sha256(text.encode()).hexdigest()[:8]
    # Two pages in one process stay apart; dataclasses look their module up by name. In a package it
    # is the package's, so that a page may import the runtime that stands beside it.
    name = (
        _package_of(path)
        + f"specc_page_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Refusal(f"{path} is no Python file, so it is no page.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Refusal(f"{path} is no Python: line {error.lineno}: {error.msg}.") from None
    build_model = getattr(module, "build_model", None)
    if build_model is None:
        raise Refusal(f"{path} has no build_model, so it is no page; `specc compile` writes one.")
    loss = getattr(module, "LOSS", None)
    config_class = getattr(module, "Config", None)
    layers, cut = cut_places(module)
    no_stages = getattr(module, "NO_STAGES", None)
    return Page(path, body, loss, build_model, config_class, layers, cut, no_stages)


def cut_places(module: ModuleType) -> tuple[tuple[str, ...] | None, CutPlaces | None]:
    """LAYERS, and with FIRST_STAGE and LAST_STAGE."""
    layers = getattr(module, "LAYERS", None)
    if layers is None:
        return None, None
    layers = (layers,) if isinstance(layers, str) else tuple(layers)
    first, last = (getattr(module, name, None) for name in ("FIRST_STAGE", "LAST_STAGE"))
    if first is None or last is None:
        return layers, None
    return layers, CutPlaces(layers, tuple(first), tuple(last))


def _package_of(path: Path) -> str:
    """The package that the file's folder is, with a dot behind it; empty where it is none."""
    folder, name = path.resolve().parent, ""
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    return name
