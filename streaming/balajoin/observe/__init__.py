"""What operators tell of each batch, and everyone who listens: the log, metrics and the live view."""
