"""Elections: one leader among many candidates, term after term."""
