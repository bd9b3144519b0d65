"""How a verb ends: exit codes, and the findings that are misuse."""

FINDINGS, MISUSE, INTERRUPTED = 1, 2, 130
ABSENT = ("RW001", "RW002")  # no such file, no such pack
