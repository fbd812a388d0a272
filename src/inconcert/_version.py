"""The version of the package: here once, and read from here when the package is built."""

__all__ = ["__version__"]

__version__ = "0.1.0"
