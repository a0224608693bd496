"""The compute side: what one node stores, how it finds matches, and when it drops rows."""
