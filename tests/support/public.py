"""The public names of the package."""

import inconcert

PUBLIC: list[str] = vars(inconcert)["__all__"]  # made while it runs: checkers read the imports
