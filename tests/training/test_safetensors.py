"""runtime/safetensors.py reads and writes what the package of that name does."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from specc.runtime.refusal import Refusal
from specc.runtime.safetensors import DTYPES, Entry, Reader, write


def sample() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = {"scalar": torch.tensor(1.5), "empty": torch.empty(0, 3), "é.名": torch.ones(2)}
    for name, dtype in DTYPES.items():
        tensors[name] = (torch.randn(3, 5) * 3).to(dtype)
    return tensors


def write_all(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    entries = {name: Entry(t.dtype, tuple(t.shape)) for name, t in tensors.items()}
    with path.open("wb") as file:
        write(file, entries, tensors.items())


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.view(-1).tolist() == b.view(-1).tolist()


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    write_all(tmp_path / "a", sample())
    read = safetensors.torch.load_file(tmp_path / "a")
    assert read.keys() == sample().keys()
    assert all(same(read[name], tensor) for name, tensor in sample().items())


def test_we_read_what_the_package_writes(tmp_path: Path) -> None:
    safetensors.torch.save_file(sample(), tmp_path / "a", metadata={"format": "pt"})
    read = Reader(tmp_path / "a")
    assert set(read) == sample().keys()
    assert all(same(read[name], tensor) for name, tensor in sample().items())


def test_to_ask_for_a_name_reads_no_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path / "a", {"x": torch.ones(2)})
    read = Reader(tmp_path / "a")
    monkeypatch.setattr(Reader, "rows", pytest.fail)
    assert "x" in read and "y" not in read


def test_a_tensor_that_is_not_contiguous_is_written_as_it_looks(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).view(2, 3).t()
    write_all(tmp_path / "a", {"x": tensor})
    assert torch.equal(Reader(tmp_path / "a")["x"], tensor)


@pytest.mark.parametrize("left", [0, 5, 40, -1])
def test_a_cut_file_is_refused(tmp_path: Path, left: int) -> None:
    write_all(tmp_path / "a", sample())
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "b").write_bytes(whole[:left])
    with pytest.raises(Refusal, match=r"\d+"):
        Reader(tmp_path / "b")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"not JSON",
        b'{"x": 3}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}',
        b'{"x": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
    ],
)
def test_a_foreign_header_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(Refusal, match="no safetensors file"):
        Reader(tmp_path / "a")


def test_writing_checks_what_it_is_given(tmp_path: Path) -> None:
    entries = {"x": Entry(torch.float32, (2,))}
    with (tmp_path / "a").open("wb") as file:
        with pytest.raises(ValueError, match=r"\(3,\)"):
            write(file, entries, [("x", torch.zeros(3))])
        with pytest.raises(ValueError):
            write(file, entries, [])


def test_rows_are_read_alone(tmp_path: Path) -> None:
    tensor = torch.arange(24.0).view(4, 3, 2)
    write_all(tmp_path / "a", {"first": torch.ones(5), "x": tensor})
    reader = Reader(tmp_path / "a")
    for start in range(4):
        for count in range(4 - start + 1):
            assert torch.equal(reader.rows("x", start, count), tensor[start : start + count])
