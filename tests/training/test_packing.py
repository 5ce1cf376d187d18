"""Documents packed in sequences: places of their beginnings, labels across their bounds."""

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.data import IGNORED, Layout, Row, SequenceSet
from specc.runtime.data_open import open_data
from specc.runtime.data_sources import HeldTokens
from specc.runtime.packing import Packing, start_of_each
from specc.runtime.refusal import Refusal
from specc.runtime.tokenize import tokenize

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of fused kernels that are not there
    from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids

EOD = 0
texts = st.lists(st.lists(st.integers(1, 9), max_size=7), min_size=1, max_size=8)


def held(documents: list[list[int]]) -> HeldTokens:
    starts, tokens = [], []
    for document in documents:
        starts.append(len(tokens))
        tokens += document
    return HeldTokens(torch.tensor(tokens, dtype=torch.int32), torch.tensor(starts))


def rows(documents: list[list[int]], length: int, packing: Packing) -> list[tuple[int, Row]]:
    """Each sequence with the place where it begins."""
    tokens = held(documents)
    sequences = SequenceSet(tokens, length, packing=packing)
    last = len(tokens) - 1 - length
    return [(min(i * length, last), sequences[i]) for i in range(len(sequences))]


@given(texts, st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_starts_and_labels_are_those_of_a_loop_over_tokens(
    documents: list[list[int]], length: int
) -> None:
    whose = [which for which, document in enumerate(documents) for _ in document]
    tokens = [token for document in documents for token in document]
    if len(tokens) < length + 1:
        return
    for number, (begin, row) in enumerate(rows(documents, length, Packing(packed=True))):
        assert row.starts is not None
        for place in range(length):
            first = next(p for p in range(length) if whose[begin + p] == whose[begin + place])
            assert int(row.starts[place]) == first
            same = whose[begin + place] == whose[begin + place + 1]
            new = begin + place >= number * length  # not a label of the sequence before
            label = tokens[begin + place + 1] if same and new else IGNORED
            assert int(row.labels[place]) == label


@given(texts, st.integers(1, 8), st.booleans())
@settings(max_examples=100, deadline=None)
def test_with_an_end_of_document_positions_and_labels_are_megatrons(
    documents: list[list[int]], length: int, masked: bool
) -> None:
    ended = [[*document, EOD] for document in documents]
    if sum(map(len, ended)) < length + 1:
        return
    packing = Packing(packed=True, eod=EOD, eod_mask_loss=masked)
    for number, (begin, row) in enumerate(rows(ended, length, packing)):
        mask, counted, positions = _get_ltor_masks_and_position_ids(
            row.ids, EOD, True, True, masked, True
        )
        assert row.starts is not None
        places = torch.arange(length)
        assert torch.equal(places - row.starts, positions)
        seen = (row.starts[:, None] <= places) & (places <= places[:, None])  # by a query, a key
        assert torch.equal(~seen, mask[0])
        new = places >= number * length - begin
        assert torch.equal(row.labels != IGNORED, (counted > 0) & new)


def test_the_loss_at_the_end_of_document_is_masked_without_packing_too() -> None:
    (_, row), *_ = rows([[1, 2, EOD], [3, 4, EOD, 5]], 6, Packing(eod=EOD, eod_mask_loss=True))
    assert row.starts is None
    assert row.labels.tolist() == [2, 0, IGNORED, 4, 0, IGNORED]
    (_, row), *_ = rows([[1, 2, EOD], [3, 4, EOD, 5]], 6, Packing(eod=EOD))
    assert row.labels.tolist() == [2, 0, 3, 4, 0, 5]


def test_a_document_that_began_before_begins_at_0() -> None:
    assert start_of_each(torch.tensor([-3, 2, 2, 5, 6]), 6).tolist() == [0, 0, 2, 2, 2, 5]
    assert start_of_each(torch.tensor([], dtype=torch.int64), 2).tolist() == [0, 0]


def test_documents_of_text_and_of_token_files_are_the_same(tmp_path: Path) -> None:
    lines = ["one line", "two", "", "of three lines"]
    quoted = "\n".join(f'{{"text": "{line}"}}' for line in lines)
    (tmp_path / "text.jsonl").write_text(quoted)
    (tmp_path / "ended.jsonl").write_text(quoted)
    tokenize([str(tmp_path / "ended.jsonl")], tmp_path / "tokens", append_eod="\n")
    found = [
        open_data([(1.0, path)], length=8, seed=0, valid_fraction=0, packed=True)
        for path in (tmp_path / "text.jsonl", tmp_path / "tokens")
    ]
    # The newline between two lines is the end of a document here: as many tokens, and one more.
    text, files = (data.training_batches(Layout(data.count, 1), 0)[0] for data in found)
    assert text.starts is not None and files.starts is not None
    ours = dict(zip(map(tuple, text.input_ids.tolist()), text.starts.tolist(), strict=True))
    theirs = dict(zip(map(tuple, files.input_ids.tolist()), files.starts.tolist(), strict=True))
    both = ours.keys() & theirs.keys()
    assert len(both) >= 3 and all(ours[ids] == theirs[ids] for ids in both)
    # After a newline that ends a document by name the label counts; after a mere one it doesn't.
    assert int((files.labels == IGNORED).sum()) < int((text.labels == IGNORED).sum())


def test_the_end_of_document_has_to_be_known_and_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text that is long enough")
    tokenize([str(tmp_path / "a.txt")], tmp_path / "tokens", append_eod="256")
    for path in ("tokens", "a.txt"):
        open_data([(1.0, tmp_path / path)], length=4, seed=0, eod=256, eod_mask_loss=True)
    open_data([(1.0, tmp_path / "tokens")], length=4, seed=0, eod_mask_loss=True)
    with pytest.raises(Refusal, match=r"a\.txt says none"):
        open_data([(1.0, tmp_path / "a.txt")], length=4, seed=0, eod_mask_loss=True)
    with pytest.raises(Refusal, match="ends its documents with token 256, and 3 was given"):
        open_data([(1.0, tmp_path / "tokens")], length=4, seed=0, eod=3)
