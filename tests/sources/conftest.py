"""The configurations and specs of tests/compiler are used here too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "compiler"))


@pytest.fixture(scope="session")
def seed_spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seed's example without its forward, which is slow."""
    text = (TESTS.parent / "generated_examples" / "diy_gpt_spec.py").read_text(encoding="utf-8")
    model, _, _ = text.partition("# 用 ModuleSpec 构建真正的模型实例")
    file = tmp_path_factory.mktemp("seed") / "diy_gpt_spec.py"
    file.write_text(model, encoding="utf-8")
    return file
