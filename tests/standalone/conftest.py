"""The tone of every diagnostic of these tests, and where pages of other tests are made."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))

from tone import tone_of_messages

__all__ = ["tone_of_messages"]
