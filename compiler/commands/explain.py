"""`specc explain`."""

from __future__ import annotations

import click

from .options import Tell, diagnostics_format


@click.command("explain")
@click.argument("code", required=False)
@click.option("--spec", is_flag=True, help="Print the spec that the examples change.")
@diagnostics_format
def command(code: str | None, spec: bool, tell: Tell) -> None:
    """Explain the CODE of a diagnostic: what it means, an example, and what is right.

    CODE is SP101, sp101 or 101; without one, all codes are listed. With --format json an
    explanation is one object.
    """
    from specc.compiler.explain.explanations import code_of, codes, explanation, tiny_spec

    if spec:
        click.echo(tiny_spec(), nl=False)
    elif code is None:
        for known in codes():
            _show(known, explanation(known).meaning, None, tell.format)
    else:
        wanted = code_of(code)
        if wanted not in codes():
            _refuse(code)
        found = explanation(wanted)
        text = found.text if tell.format == "json" else found.for_terminal()
        _show(found.code, found.meaning, text, tell.format)


def _show(code: str, meaning: str, text: str | None, format: str) -> None:
    if format != "json":
        click.echo(text if text is not None else f"{code}  {meaning}")
        return
    import json

    from specc.compiler.explain.json_form import SCHEMA_VERSION

    said = {"schema_version": SCHEMA_VERSION, "code": code, "meaning": meaning}
    click.echo(json.dumps(said | ({"text": text} if text is not None else {}), ensure_ascii=False))


def _refuse(word: str) -> None:
    from specc.compiler.diagnostics import fail
    from specc.compiler.explain.explanations import explanation, nearest

    near = [f"{code} ({explanation(code).meaning})" for code in nearest(word)]
    fail(
        "SP699",
        f"`{word}` is not the code of a diagnostic",
        help=f"the nearest are {', '.join(near)}" if near else "`specc explain` lists all codes",
    )
