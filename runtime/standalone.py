"""Whether this is the text of a page that needs torch alone."""

# False wherever it runs from here. `specc eject --standalone` folds the runtime's source into a
# page with True in its place, beside the mesh of one process: an `if STANDALONE:` says how a page
# without the runtime does what only many processes, or the trainer, need done in another way.
STANDALONE = False
