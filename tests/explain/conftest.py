"""Every diagnostic that the examples give has the tone of the others."""

from tone import tone_of_messages

__all__ = ["tone_of_messages"]
