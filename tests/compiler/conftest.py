"""Fixtures: a project of a few lines, and a compiler that is small enough to see through."""

from fake_pipeline import folder, pipeline

__all__ = ["folder", "pipeline"]
