"""Reports of each batch, and those who read them: the log, the metrics and the live view."""
