"""A standalone page from a page: read, folded, put in words, laid out."""

from __future__ import annotations

from ..header import split_page
from .calls_back import call_modules
from .dtype import mesh_to_dtype
from .equal import refuse_different
from .fold_program import folded
from .initial import with_plain_fills
from .layout import laid_out
from .leftovers import refuse_leftovers
from .read import Page, read_page
from .refuse_kinds import refuse_kinds
from .unread import drop_fields_of_the_trainer, drop_hidden, drop_unreached
from .words import with_words_alone


def standalone_page(page_text: str, name: str, *, validate: bool = True) -> str:
    """The text of a page that needs torch alone and computes what the page does in one process.

    `name` is what the page is called in it and in diagnostics. Raises CompileError where the page
    needs what cannot be folded in, or where the result does not give the page's numbers, bit for
    bit, on a small copy; `validate` False leaves the comparison out.
    """
    refuse_kinds(read_page(page_text, name)[1])
    program = folded(lambda: read_page(page_text, name)[0])
    refuse_leftovers(program, Page(page_text, name))
    call_modules(program)
    mesh_to_dtype(program)
    with_plain_fills(program)
    header = split_page(page_text)
    with_words_alone(program, header[0].authored if header else ())
    drop_fields_of_the_trainer(program)
    drop_hidden(program)
    drop_unreached(program)
    text = laid_out(program, name)
    if validate:
        refuse_different(page_text, text, name)
    return text
