"""tests/architecture has the published models, with their pages and runs cached."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "architecture"))
