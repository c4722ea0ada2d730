"""Methods with a server that has no rounds."""
