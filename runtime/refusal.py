"""Refusal: what the one who starts a run got wrong, told in one sentence."""


class Refusal(Exception):
    """Bad input to a command. The program prints the sentence and exits with 2, no traceback."""
