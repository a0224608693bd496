"""A join's settings: their models, the file that holds them, and the problems found in either."""
