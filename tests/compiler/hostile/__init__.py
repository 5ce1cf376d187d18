"""Classes written to break the compiler: `test_hostile.py` has the table of what becomes of each."""
