"""One file for each contestant, known to the measurements by what it prints."""
