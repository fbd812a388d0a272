"""Runnable examples, one idea a file, and one whole service."""
