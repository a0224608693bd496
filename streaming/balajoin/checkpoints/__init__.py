"""What a checkpoint holds: read, shown, and written anew for another number of nodes. No query runs here."""
