"""How a verb ends: exit codes, and the findings that are misuse."""

FINDINGS, MISUSE = 1, 2
ABSENT = ("RW001", "RW002")  # no such file, no such pack
