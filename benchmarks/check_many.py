"""How long `specc check` takes for a repository of fresh pages.

    python benchmarks/check_many.py [--pages 200] [--cores 2] [--runs 3]

Makes a git repository of pages, each with a header that holds, the text of the Llama of
`generated_examples/`, and a spec of its own that imports a local file. Prints the seconds of whole
runs of `specc check`, and what they said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from specc.compiler.fingerprint import Fingerprints
from specc.compiler.header import make_header, split_page

EXAMPLES = Path(__file__).parents[1] / "generated_examples"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    with tempfile.TemporaryDirectory() as name:
        write_repository(Path(name), options.pages)
        for _ in range(options.runs):
            begun = time.perf_counter()
            done = subprocess.run(
                [str(Path(sys.executable).with_name("specc")), "check"],
                cwd=name,
                capture_output=True,
                text=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
            seconds = time.perf_counter() - begun
            said = (done.stdout + done.stderr).splitlines()[-1]
            print(f"{seconds:.2f} s on {len(cores)} cores, exit {done.returncode}: {said}")


def write_repository(folder: Path, pages: int) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    parsed = split_page((EXAMPLES / "llama.py").read_text(encoding="utf-8"))
    assert parsed is not None
    spec_text = (EXAMPLES / "llama_spec.py").read_text(encoding="utf-8")
    now = Fingerprints()
    for number in range(pages):
        models = folder / f"family_{number % 10}"
        models.mkdir(exist_ok=True)
        (models / "sizes.py").write_text("WIDTH = 2048\n", encoding="utf-8")
        spec = models / f"llama_{number}_spec.py"
        spec.write_text(f"import sizes  # {number}\n{spec_text}", encoding="utf-8")
        body = parsed[1].replace("num_layers: int = 16", f"num_layers: int = {number + 1}")
        header = make_header(
            origin=f"{spec.name}:llama",
            overrides=(),
            spec=now.spec(spec, (), "llama"),
            library=now.library(spec, body),
            body=body,
        )
        page = models / f"llama_{number}.py"
        page.write_text(header.render() + body, encoding="utf-8")


if __name__ == "__main__":
    main()
