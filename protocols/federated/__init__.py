"""Methods with a server that sends and receives whole models."""
