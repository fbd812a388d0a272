"""`python -m inconcert`: the command line."""

from inconcert.cli import main

main()
