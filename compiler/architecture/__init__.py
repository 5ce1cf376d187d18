"""A model's architecture as data: read from a page, compared, counted.

`read` makes an `Architecture` of a page, `compare` a `Difference` of two, `figures` the numbers
that people ask for; `specc.compiler.render` shows them.
"""
