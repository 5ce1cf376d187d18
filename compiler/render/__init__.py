"""Architectures, differences and figures as text, JSON, Markdown, HTML and SVG."""
