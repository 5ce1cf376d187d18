"""docs/diagnostics.md and the code say the same codes, and each code means one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs"
CODE = re.compile(r"SP\d{3}")
ROW = re.compile(r"^\| (SP\d{3}) \| (.+?) \|", re.MULTILINE)

# The codes that more than one file raises, since one mistake is found at several places.
SHARED = {
    "SP312": {"compiler/construct.py", "compiler/unify.py"},
    "SP602": {"compiler/upkeep/check.py", "compiler/write.py"},
    "SP604": {"compiler/target.py", "compiler/upkeep/check.py"},
    "SP607": {"compiler/upkeep/check.py", "compiler/upkeep/eject.py", "compiler/write.py"},
    "SP608": {"compiler/upkeep/check.py", "compiler/upkeep/eject.py"},
    "SP634": {"compiler/yaml_nodes.py", "compiler/yaml_spec.py"},
    "SP660": {"compiler/sources/page_numbers.py", "compiler/sources/read_back.py"},
}


def sources() -> Iterator[Path]:
    for folder in ("runtime", "templates", "huggingface", "compiler"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def raised() -> dict[str, set[str]]:
    """Codes that stand in a file as a string of their own, with the files (validate/ as one)."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        place = path.relative_to(ROOT)
        name = "compiler/validate" if "validate" in place.parts else place.as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and CODE.fullmatch(str(node.value)):
                found[str(node.value)].add(name)
    return found


def documented() -> list[tuple[str, str]]:
    return ROW.findall((PAGES / "diagnostics.md").read_text(encoding="utf-8"))


def test_docs_list_every_code_and_no_other() -> None:
    rows = {code for code, _ in documented()}
    missing, unknown = sorted(raised().keys() - rows), sorted(rows - raised().keys())
    assert not missing, f"docs/diagnostics.md lacks {missing}"
    assert not unknown, f"docs/diagnostics.md has {unknown}, and nothing raises them"


def test_each_code_has_one_row_and_each_meaning_one_code() -> None:
    codes, meanings = zip(*documented(), strict=True)
    again = [m for m, count in Counter(meanings).items() if count > 1]
    assert not again, f"two codes mean {again}"
    twice = [code for code, count in Counter(codes).items() if count > 1]
    assert not twice, f"docs/diagnostics.md explains {twice} twice"


def test_a_code_is_raised_in_one_file() -> None:
    """Two files that use one code by accident would give it two meanings."""
    shared = {code: files for code, files in raised().items() if len(files) > 1}
    assert shared == SHARED


def test_codes_that_texts_mention_exist() -> None:
    """Also `SP501 to SP505` in a docstring, and the other pages of the documentation."""
    known = raised().keys()
    texts = [*sources(), *PAGES.glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"]
    for path in texts:
        for code in CODE.findall(path.read_text(encoding="utf-8")):
            assert code in known, f"{path.relative_to(ROOT)} speaks of {code}"
