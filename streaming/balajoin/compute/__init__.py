"""The compute side: what one node stores, how it finds matches, when it forgets."""
