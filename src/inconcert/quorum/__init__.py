"""A lock that a majority of independent servers grants."""
