"""What keeps a committed page in step with its spec: check, merge, eject, vendor."""
