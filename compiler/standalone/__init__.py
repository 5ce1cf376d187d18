"""A page that needs torch alone: what it uses of the runtime is folded in, for one process."""

from .make import standalone_page

__all__ = ["standalone_page"]
