"""What the training tests share: a short text and two small pages."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLAYS = HERE.parents[1] / "generated_examples" / "shakespeare.txt"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """6,000 bytes of English."""
    file = tmp_path / "text.txt"
    file.write_bytes(PLAYS.read_bytes()[10_000:16_000])
    return file


@pytest.fixture
def tiny_page() -> Path:
    """A decoder with LOSS = "per_token", vocabulary 257, 32 positions, 2 key/value heads."""
    return HERE / "tiny_page.py"


@pytest.fixture
def mean_page() -> Path:
    """A user's class with LOSS = "local_mean", vocabulary 256, 16 positions."""
    return HERE / "mean_page.py"
