"""Reads, shows and rescales checkpoints. No query runs here."""
