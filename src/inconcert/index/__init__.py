"""Documents found by their words, and ranked by relevance and by scores of their own."""
