"""Where models come from: specs, pages, git revisions of either; and where a page's lines do."""

from .source import Source, open_source

__all__ = ["Source", "open_source"]
