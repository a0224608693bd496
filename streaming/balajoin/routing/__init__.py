"""The routing side: which node each row of a source goes to."""
