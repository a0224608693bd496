"""The join as a service: checked, started, and run until it is told to stop."""
