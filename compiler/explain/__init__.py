"""What the codes of diagnostics mean, at length."""
