"""Classes written to break the compiler: each compiles and is equal, or is refused where it stands.

The table is ordered by what it attacks, and says of each class what becomes of it and why. A class
that is refused names its line by a comment, `# refused: NAME`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from equality import assert_same, load_page, run
from hostile.parts import Options
from torch import Tensor

from specc.compiler.pipeline import compile_spec
from specc.runtime import Mesh
from specc.templates import ModuleSpec
from specc.templates.diagnostic import SpecError

FOLDER = Path(__file__).parent / "hostile"
EQUAL = "equal"

TABLE: dict[str, list[tuple[str, str, str]]] = {
    "tests of the config, conditional expressions, and/or/not": [
        ("branches.Chain", EQUAL, "one branch of each chain is taken, its words stay"),
        ("branches.Precedence", EQUAL, "parentheses of a replaced expression stay where they bind"),
        ("branches.ValueOfAnd", EQUAL, "a known right side of `and` is a value, not a test"),
        ("branches.Chained", EQUAL, "tests of numbers stay or become an assertion of the Config"),
        ("branches.NumberChooses", EQUAL, "the Config asserts the number that chose the child"),
        ("branches.ShapeDecides", EQUAL, "a test of the input stays, the known half of it goes"),
        ("branches.EarlyReturn", EQUAL, "what follows a decided return is never reached"),
        ("branches.IsString", EQUAL, "`is` between strings or numbers is left"),
        ("corners.Recursive", "SP306", "a depth decides which child there is, and is no field"),
        ("corners.NumberBuilds", "SP306", "a number of the spec does, and is no field"),
    ],
    "self.flag set in the constructor, read elsewhere": [
        ("state.Toggled", EQUAL, "a method stores it, so it is no fact"),
        ("state.ToggledInLoop", EQUAL, "in a loop of the constructor it is none either"),
        ("state.SetByOther", EQUAL, "its owner stores it under that name"),
        ("state.SetThroughAlias", EQUAL, "`me.gate = ...` stores it under that name"),
        ("state.SetByHelper", EQUAL, "a helper that is handed a module stores it"),
        ("state.SetByClosure", EQUAL, "a function made in the constructor runs later"),
        ("state.TrainingFlag", EQUAL, "nn.Module stores it"),
        ("state.ClassAttribute", EQUAL, "class attributes are left"),
        ("corners.SetsChild", EQUAL, "a constructor stores attributes of the child it built"),
        ("state.Mangled", "SP320", "the name in the state has the class's name in it"),
        ("flow.RebindsSelf", "SP319", "attributes are found by the name `self`"),
    ],
    "setattr, delattr, vars, exec": [
        ("state.SetAttr", "SP305", "the store has no name in the text"),
        ("state.SetAttrByHelper", "SP305", "nor in the helper's"),
        ("state.VarsOfSelf", "SP305", "stores into the instance's dict"),
        ("state.Executed", "SP305", "stores from a string"),
        ("state.DelAttr", EQUAL, "`del self.gate` is a store like any other"),
    ],
    "getattr and hasattr of self": [
        ("state.ReadByName", EQUAL, "every string in the class counts as a read"),
        ("state.ReadByComputedName", EQUAL, "a computed name may read anything: nothing is pruned"),
        ("state.ReadByGetter", EQUAL, "so may attrgetter"),
        ("corners.PicksFunction", EQUAL, "of a library's module it is no attribute of ours"),
    ],
    "getattr of the config, with a default": [
        ("configs.ByName", EQUAL, "the field is kept, or the default is what it comes to"),
        ("configs.ByComputedName", "SP203", "which field is read is not in the text"),
    ],
    "a config that is changed, replaced or handed on": [
        ("configs.Changes", "SP315", "only a frozen config is one"),
        ("configs.Forces", "SP305", "`object.__setattr__` hides the store"),
        ("configs.Replaces", "SP203", "`replace` reads fields that the page's Config has not"),
        ("configs.Aliases", EQUAL, "under other names its fields are found by name"),
        ("configs.ToHelper", EQUAL, "so they are in a helper that is handed it"),
        ("configs.Compared", EQUAL, "and where a method returns it"),
        ("configs.Enumerates", "SP203", "a helper that counts the fields counts the page's"),
        ("configs.Prints", "SP203", "its text would be another"),
        ("configs.AsksClass", "SP206", "the page's Config is a class of its own"),
        ("configs.ReadsAlias", EQUAL, "a property read by name keeps its name"),
        ("configs.SuperInProperty", "SP207", "the page's Config has no base"),
        ("configs.SelfInProperty", "SP207", "nor all the fields"),
        ("configs.MethodInProperty", "SP202", "nor methods"),
        ("configs.MethodInHelper", "SP208", "also where a helper asks"),
        ("configs.CallsMethod", "SP202", "the page's Config has no methods"),
        ("configs.ReadsClassVar", "SP202", "nor class variables"),
        ("configs.ReadsCached", "SP202", "nor cached properties"),
        ("configs.ReadsDerived", EQUAL, "a field that __post_init__ computes is a number"),
        ("configs.TwoConfigs", EQUAL, "configs of two classes are two classes of the page"),
        ("configs.TwoValues", EQUAL, "a property may come to a field in one and not in the other"),
        ("corners.TwoAssume", EQUAL, "each config asserts what was assumed of it"),
        (
            "corners.OddValues",
            EQUAL,
            "infinities, quotes and nested tuples are written as they are",
        ),
        ("corners.NestedConfig", "SP403", "a config inside a config has no text yet"),
    ],
    "mutable attribute values": [
        ("state.ListAttribute", EQUAL, "the length of a list is no fact"),
        ("children.SharesList", "SP329", "a list of the spec is one list for all instances"),
        ("children.ReadsList", EQUAL, "one that is only read is as good as a tuple"),
        ("children.CountsTogether", "SP328", "a list of the class would become two"),
        ("flow.MutableDefault", EQUAL, "a default that remembers is the class's, and is copied"),
    ],
    "aliasing": [
        ("state.Copied", EQUAL, "a copy is called as nobody sees: its class is left as it is"),
        ("children.Kept", EQUAL, "a child with several names may be called by any"),
        ("children.Shares", EQUAL, "one child under two owners"),
        ("corners.Leaks", EQUAL, "a loop's variable after the loop, in a lambda, in a pair"),
        ("corners.Rebinds", EQUAL, "a loop's variable that is rebound under a condition"),
        ("corners.Grandchild", EQUAL, "a child's child, called through a list"),
        ("corners.ThroughProperty", EQUAL, "a child behind a property"),
    ],
    "locals rebound in a loop, try, with, a dynamic branch": [
        ("flow.LoopLocals", EQUAL, "a name that a loop stores is unknown before and after it"),
        ("flow.WhileLoop", EQUAL, "the same for while"),
        ("flow.TryFinally", EQUAL, "and for try"),
        ("flow.With", EQUAL, "and for with"),
        ("flow.UsedBeforeReturn", EQUAL, "after a branch a name is known where both agree"),
        ("flow.LoopVariable", EQUAL, "one name over two lists, and then a function"),
        ("branches.MovedPastEffect", EQUAL, "a value is not moved past a call that may change it"),
        ("branches.MovedPastInPlace", EQUAL, "nor past an operation in place"),
    ],
    "nested functions, lambdas, generators": [
        ("flow.NestedFunction", EQUAL, "bodies that are bound late stay whole"),
        ("flow.Lambdas", EQUAL, "what they read of the config is on the page"),
        ("flow.Yields", EQUAL, "a generator whose only yield would go stays whole"),
        ("flow.UsesGenerator", EQUAL, "a forward that is a generator"),
        ("flow.Awaits", EQUAL, "a coroutine"),
    ],
    "a comprehension that builds layers": [
        ("flow.Comprehensions", EQUAL, "its names are its own, its condition reads the config"),
        ("children.BuiltPattern", EQUAL, "children of several classes are a pattern"),
        ("children.PatternReadsKind", EQUAL, "the pattern's own name gives way to the author's"),
        ("children.BuiltInLoop", EQUAL, "one class built in a plain loop"),
        ("children.BuiltMixed", "SP309", "several classes built by one call in a plain loop"),
        ("corners.HandedDiffer", "SP312", "specs at one place that hand on other numbers"),
        ("corners.GivenDiffer", "SP312", "one of them leaves the default"),
        ("children.IdentityInList", "SP401", "a list of children that are not there"),
    ],
    "loops over a ModuleList in forward": [
        ("children.Indexed", EQUAL, "by index, slice, zip and enumerate; never unrolled"),
        ("corners.UsesStack", EQUAL, "a container of the user's, with a forward of its own"),
        ("children.Iterated", EQUAL, "children(), get_submodule and _modules may call any child"),
    ],
    "super().__init__ chains": [
        ("inherited.Renamed", EQUAL, "a renamed argument becomes a local"),
        ("inherited.RenamedClash", "SP307", "where the class has that name for something else"),
        ("inherited.ThreeLevels", EQUAL, "base over base"),
        ("inherited.OldSuper", EQUAL, "super(Class, self) is super()"),
        ("inherited.SuperInBranch", EQUAL, "under a condition that is decided"),
        ("inherited.NoInit", EQUAL, "the base's constructor is the class's"),
        ("inherited.StarBase", "SP307", "`*args` says nothing of the base's parameters"),
        ("corners.CallsInArgument", EQUAL, "an argument that the base drops is a call that stays"),
        ("corners.EarlyDerived", "SP324", "the base's return would end the class's constructor"),
        ("corners.RebindingDerived", "SP308", "the base changes a parameter that the class reads"),
        ("corners.LocalDerived", "SP308", "a local of a base two levels up"),
        ("corners.InitAgain", "SP322", "the constructor runs a second time"),
        ("corners.HoldsPositional", "SP326", "a page passes arguments by name"),
    ],
    "super().forward and other methods of a base": [
        ("inherited.CallsSuper", EQUAL, "the base's method stays under a name of its own"),
        ("inherited.NamedBase", "SP407", "a base called by its name is not on the page"),
        ("corners.SuperValue", "SP322", "super() itself is no method"),
        ("corners.SuperProperty", "SP322", "nor is a property of it"),
        (
            "inherited.UsesFromTorch",
            EQUAL,
            "a base of torch's reads attributes that the class stores",
        ),
    ],
    "templates extended": [
        ("extended.ParallelLayer", EQUAL, "forward overridden"),
        ("extended.ScaledLayer", EQUAL, "constructor extended, the template's forward called"),
        ("extended.CallsSuperStar", EQUAL, "forward hands on `*args`"),
        ("extended.GatedAttention", EQUAL, "a gate after the template's attention"),
        ("extended.OneMethod", EQUAL, "one method more"),
        ("extended.Norm", EQUAL, "a norm of the runtime's, extended"),
        ("extended.LoggingModel", EQUAL, "the root itself"),
        ("extended.StarLayer", "SP101", "`**kwargs` has no place for children"),
    ],
    "several bases, metaclasses": [
        ("inherited.SeveralBases", "SP301", "a class of a page has one base"),
        ("inherited.Abstract", "SP302", "a metaclass may do anything"),
        ("inherited.Registered", "SP318", "__init_subclass__ acts when the class is made"),
    ],
    "properties, static methods, class attributes": [
        ("state.PropertyWithState", EQUAL, "reading a property runs code, so it is never dropped"),
        ("state.PropertySetter", "SP310", "a setter hides a store"),
        ("corners.MethodLikeFunction", EQUAL, "a method called like a function of the module"),
        ("corners.ClassLevel", "SP323", "statements of a class stand above its methods"),
    ],
    "decorators on methods": [
        ("named.DecoratedMethods", EQUAL, "they stay, the body is folded"),
        ("children.OwnsDecorated", EQUAL, "one on forward may call it with anything"),
        ("children.OwnsCaller", EQUAL, "so may a `__call__` of its own"),
        ("state.Patched", "SP321", "a method replaced later is not the one in the text"),
        ("state.InstanceForward", EQUAL, "an instance's own forward takes what it takes"),
        ("state.BoundLater", EQUAL, "a method bound to the instance"),
    ],
    "decorators on classes": [
        ("named.DecoratedClass", "SP304", "it replaces the class"),
        ("named.MarkedClass", "SP304", "it might"),
    ],
    "functions called from forward": [
        ("named.Helpers", EQUAL, "copied with what they use, data classes and tuples too"),
        ("named.DecoratedHelper", EQUAL, "with the decorators of a library"),
        ("named.WrappedHelper", EQUAL, "and with the user's own"),
        ("corners.CallsInCircles", EQUAL, "two that call each other"),
        ("corners.HidesBuiltin", EQUAL, "one that is called like a builtin"),
        ("flow.CountsInHelper", "SP317", "one that changes a name of its module"),
        ("named.ReboundFunction", "SP411", "one that was replaced"),
        ("named.MarkedFunction", "SP411", "one that carries attributes"),
        ("named.AugmentedConstant", "SP411", "a constant made by two statements"),
        ("named.ReboundConstant", "SP411", "or bound twice"),
        ("named.FilledTable", "SP411", "a table filled by other statements"),
        ("named.FilledRegistry", "SP411", "or by decorators"),
        ("flow.Counts", "SP317", "a class that changes a name of its module"),
        ("children.PassesSelf", EQUAL, "a helper that calls a child of the module it is handed"),
    ],
    "closures from factory functions": [
        ("named.FromFactory", "SP409", "its free variables have no source"),
        ("named.Hidden", "SP303", "a class made in a function"),
    ],
    "name collisions": [
        ("named.LocalLikeImport", EQUAL, "only free names count as needs"),
        ("named.LocalLikeFunction", EQUAL, "a local hides what the module calls by that name"),
        ("named.DefaultReads", EQUAL, "a default is evaluated in its own module"),
        ("named.DefaultReadsConfig", EQUAL, "also one that reads a config"),
        ("named.MeshParameter", EQUAL, "the page's names as the user's locals"),
        ("named.OwnMesh", EQUAL, "a mesh of the user's makes ours parallel_mesh"),
        ("named.HoldsMesh", EQUAL, "a class called Mesh gets another name"),
        ("named.TwoNorms", EQUAL, "so does one called like a class of the runtime"),
        ("named.ConfigNotAConfig", EQUAL, "a config that is a number"),
        ("named.OurMeshRenamed", EQUAL, "the mesh's class under another name"),
        ("named.ReadsOwnConfig", "SP404", "`Config` is the page's"),
        ("named.OwnMaterialize", "SP404", "`materialize` is the page's"),
        ("named.OwnBuildModel", "SP404", "`build_model` is the page's"),
        ("inherited.Collides", "SP404", "one name of two modules in one chain of bases"),
        ("inherited.CollidingHelpers", "SP404", "one name of two modules on one page"),
        ("inherited.MangledChild", "SP320", "private names of two bases would be one"),
        ("corners.Block", EQUAL, "two classes of one name: the second gets a word in front"),
    ],
    "imports": [
        ("inherited.ModuleRead", "SP406", "a module of the user's is not on the page"),
        ("corners.GuardedImport", "SP411", "a name that some machines have"),
        ("corners.ImportsLibrary", EQUAL, "inside a method they stay"),
        ("corners.ImportsInside", "SP330", "the user's own modules are not to be had there"),
        ("inherited.ReturnsOwn", EQUAL, "an annotation may name a class that is not there yet"),
        ("inherited.Derived", EQUAL, "torch.nn.Module by its full name"),
    ],
    "f-strings": [("branches.Formats", EQUAL, "left whole; what they read is on the page")],
    "exceptions": [
        ("branches.RaisingTest", EQUAL, "a test that raises when it is evaluated stays"),
        ("corners.BuiltInTry", EQUAL, "children built under try and with"),
    ],
    "short circuit with effects": [("branches.Effects", EQUAL, "a call is never dropped")],
    "dead code": [
        ("state.Drawn", EQUAL, "a draw that nothing reads moves the generator"),
        ("state.Unused", EQUAL, "a child that nothing calls is part of the state"),
        ("state.Buffers", EQUAL, "so are buffers"),
        ("state.Tied", EQUAL, "and one parameter of two names"),
        ("state.Slots", EQUAL, "and lists of parameters"),
        ("corners.Normed", "SP331", "a constructor that needs numbers can't run without"),
    ],
    "match": [
        ("branches.Matched", EQUAL, "left, and what it stores is forgotten"),
        ("corners.BuiltInMatch", "SP325", "no child can be built in what is left"),
    ],
    "assert on static facts": [("branches.Asserts", EQUAL, "those on options go")],
    "environment": [
        ("branches.Environment", EQUAL, "never folded, not by way of an attribute either"),
        ("branches.GlobalFlag", EQUAL, "a flag of the module is copied"),
        ("children.PassesEnvironment", EQUAL, "not by way of an argument"),
        ("corners.DefaultAsks", EQUAL, "nor of a default"),
        ("configs.EnvironmentProperty", EQUAL, "nor of a property of the config"),
        ("children.UnmetBranch", "SP313", "a child that only some machines have"),
    ],
    "parallel sizes": [("corners.AsksMesh", EQUAL, "chosen at launch, so never folded")],
    "isinstance and `is None` of children": [
        ("branches.Inspected", EQUAL, "the live object answers"),
        ("children.NoIdentity", EQUAL, "an identity is not on the page"),
        ("children.IdentityHandedOn", "SP327", "so it can't be handed on"),
        ("inherited.Checked", "SP407", "a class that the page flattens has other bases there"),
        ("named.ReadsTemplate", "SP407", "a template's class is not on the page"),
    ],
    "dispatch tables": [("branches.Dispatch", EQUAL, "the table comes along whole")],
    "walrus, augmented assignment, tuple targets, del": [
        ("flow.Walrus", EQUAL, "also inside a comprehension"),
        ("flow.Augmented", EQUAL, "a folded local is not moved into its own augmentation"),
        ("flow.Targets", EQUAL, "names in tuples are forgotten"),
        ("flow.Deleted", EQUAL, "so is a deleted name"),
    ],
    "options that are enums": [
        ("branches.Enums", EQUAL, "decisions are folded"),
        ("branches.EnumOnPage", "SP403", "a member that the page still reads has no text"),
        ("corners.StringEnum", "SP403", "also one that is a string"),
    ],
    "what a child is called with": [
        ("children.TwoCalls", EQUAL, "once with a mask and once without"),
        ("children.CallsForward", EQUAL, "forward and __call__ are calls too"),
        ("children.OwnsRecursive", EQUAL, "a child that calls itself"),
        ("children.StarCalls", EQUAL, "by `*` and `**`"),
        ("children.CallsStar", EQUAL, "a forward that takes them"),
        ("children.InSequential", EQUAL, "the second of a Sequential gets what the first returns"),
        ("children.InModuleDict", EQUAL, "by key, by attribute and by items()"),
        ("children.HandedIn", EQUAL, "children that the spec hands in built"),
        ("children.Hooked", EQUAL, "a hook changes the arguments"),
        ("children.Checkpointed", EQUAL, "called by somebody else's function"),
        ("children.CallsMiddle", EQUAL, "None for one instance and a tensor for another"),
        ("children.NoConfig", EQUAL, "no config anywhere"),
        ("corners.SameClassTwice", EQUAL, "one class with other options at two places"),
    ],
    "children built in other ways": [
        ("children.BuiltInForward", "SP401", "the spec is kept for later"),
        ("children.BuiltByHelper", "SP401", "a method builds it"),
        ("children.BuildsStar", "SP311", "a constructor that takes `*sizes`"),
        ("children.BuildsWithStar", "SP311", "arguments by `**`"),
        ("children.Instance", "SP315", "a module made before the build"),
    ],
    "text": [("corners.OddText", EQUAL, "one-line suites, semicolons, other scripts")],
}
CASES = [case for cases in TABLE.values() for case in cases]

# What a page that is equal here must still ask, since elsewhere the answer may be another.
ASKS = {
    "branches.Environment": [
        "if torch.cuda.is_available()",
        "if not self.fused",
        "torch.__version__",
    ],
    "branches.GlobalFlag": ["HAVE_FAST = hasattr", "if HAVE_FAST or self.fast"],
    "branches.NumberChooses": ["assert not (self.layers > 24)"],
    "children.PassesEnvironment": ["if self.first:", "if self.fused"],
    "configs.EnvironmentProperty": ["if self.config.on_gpu", "torch.cuda.is_available()"],
    "corners.AsksMesh": ["if self.alone:", "if self.first"],
    "corners.DefaultAsks": ["if self.fused", "torch.cuda.is_available()"],
    "named.OurMeshRenamed": ["if self.alone"],
}


@cache
def marks() -> dict[str, tuple[str, int]]:
    """The file and the line that each refusal is about."""
    found = {}
    for file in FOLDER.glob("*.py"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for match in re.findall(r"# refused: (.+)$", line):
                found.update({name: (str(file), number) for name in match.split(", ")})
    return found


def spec_of(case: str) -> ModuleSpec:
    module_name, name = case.split(".")
    module = importlib.import_module(f"hostile.{module_name}")
    make: Callable[[], ModuleSpec] | None = getattr(module, f"spec_{name}", None)
    return make() if make else ModuleSpec(getattr(module, name), params={"config": Options()})


def inputs_of(case: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    if case.startswith("extended."):
        ids = torch.randint(0, 11, (2, 7), generator=generator)
        return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}
    return {"x": torch.randn(2, 3, 8, generator=generator)}


def state_names(model: torch.nn.Module) -> list[str]:
    return [*(n for n, _ in model.named_parameters()), *(n for n, _ in model.named_buffers())]


@pytest.mark.filterwarnings('ignore:"is" with')
@pytest.mark.parametrize(("case", "expected", "why"), CASES, ids=[case[0] for case in CASES])
def test_is_equal_or_refused(case: str, expected: str, why: str) -> None:
    spec = spec_of(case)
    if expected != EQUAL:
        with pytest.raises(SpecError) as caught:
            compile_spec(spec, validate=False)
        diagnostic = caught.value.diagnostics[0]
        assert diagnostic.code == expected, diagnostic
        assert diagnostic.span is not None
        place = (str(Path(diagnostic.span.file).resolve()), diagnostic.span.line)
        assert place == marks()[case.split(".")[1]]
        return
    body = compile_spec(spec, validate=False).body
    inputs = inputs_of(case)
    model = spec.build_module(seed=3)
    expected_numbers = run(model, inputs)
    page = load_page(body).build_model(Mesh.single(), seed=3)
    numbers = run(page, inputs)
    assert_same(numbers, expected_numbers)
    assert state_names(page) == state_names(model)
    assert any(v.abs().sum() > 0 for name, v in numbers.items() if "grad" in name)
    for text in ASKS.get(case, ()):
        assert text in body, body


def test_every_refusal_has_a_place_and_every_place_a_case() -> None:
    refused = {case.split(".")[1] for case, expected, _ in CASES if expected != EQUAL}
    assert refused == set(marks())
    assert len({case for case, _, _ in CASES}) == len(CASES)
    assert all(why for _, _, why in CASES)
