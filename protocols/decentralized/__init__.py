"""Methods without a server, each in one file."""
