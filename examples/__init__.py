"""Runnable examples, one idea per file, and one whole service."""
