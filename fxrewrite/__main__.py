"""`python -m fxrewrite`."""

from fxrewrite.cli import main

main()
