"""How torch's operations are written in the lines of a forward."""

from __future__ import annotations

INLINED = 56  # longer expressions get a name and a line of their own
AMONG_OTHERS = 32  # the same, where the step that takes it takes two others beside

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "truediv": "/",
    "__truediv__": "/",
    "matmul": "@",
    "__matmul__": "@",
    "pow": "**",
    "__pow__": "**",
    "floor_divide": "//",
    "__floordiv__": "//",
    "remainder": "%",
    "__eq__": "==",
    "__ne__": "!=",
    "__gt__": ">",
    "__lt__": "<",
    "__ge__": ">=",
    "__le__": "<=",
    "gt": ">",
    "lt": "<",
    "ge": ">=",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "__and__": "&",
    "__or__": "|",
}
# How tightly a sign binds: what binds less stands in parentheses inside.
STRENGTH = {
    **dict.fromkeys(("==", "!=", ">", "<", ">=", "<="), 1),
    **{"|": 2, "&": 3, "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5, "@": 5, "**": 6},
}
STRONGEST = 9
SWAPPED = {"__rsub__": "-", "rsub": "-", "__rtruediv__": "/", "__rdiv__": "/", "__rpow__": "**"}
IN_PLACE = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/="}
# Of these all whole numbers are sizes, but those at the given places (the tensor is place 0).
SIZES: dict[str, tuple[int, ...]] = {
    "arange": (),
    "broadcast_to": (),
    "empty": (),
    "expand": (),
    "full": (),
    "group_norm": (),
    "layer_norm": (),
    "linspace": (),
    "narrow": (1,),
    "new_empty": (),
    "new_full": (),
    "new_ones": (),
    "new_zeros": (),
    "one_hot": (),
    "ones": (),
    "rand": (),
    "randn": (),
    "repeat": (),
    "repeat_interleave": (2,),
    "reshape": (),
    "rms_norm": (),
    "split": (2,),
    "split_with_sizes": (2,),
    "tile": (),
    "topk": (2,),
    "unflatten": (1,),
    "view": (),
    "zeros": (),
    "__getitem__": (),
    "__setitem__": (),
}
SIZE_NAMES = {"size", "sizes", "split_size", "split_size_or_sections", "repeats", "length"}
METHODS = {
    *("chunk", "contiguous", "expand", "flatten", "float", "masked_fill", "narrow", "permute"),
    *("repeat", "repeat_interleave", "reshape", "split", "squeeze", "to", "transpose", "type_as"),
    *("unbind", "unflatten", "unsqueeze", "view"),
}
PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
# Functions of the runtime whose numbers are facts of a part.
FACTS = {
    *("attention", "rotary_tables", "apply_rotary"),
    *("ssd", "gated_delta_rule"),
    *("dispatch", "expert_capacity", "group_limited_topk", "within_capacity"),
}
# What a reader calls what these give.
KNOWN = {
    "rotary_tables": "rotary",
    "Positions.of": "positions",
    "Positions.of_hidden": "positions",
    "dispatch": "sent",
}
UNSAID = {
    "_stacklevel",
    "inplace",
    "norm_type",
    "scale_grad_by_freq",
    "sparse",
    "padding_idx",
    "max_norm",
}
