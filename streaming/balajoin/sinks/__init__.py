"""Writes results to Kafka exactly once: one transaction holds a node's results of a batch and the batch's marker."""
