"""A marketplace: a web service and its workers. Start with `python -m examples.marketplace.demo`."""
