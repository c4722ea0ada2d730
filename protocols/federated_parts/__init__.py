"""Methods with a server that sends and receives parts of models: heads, backbones, prototypes."""
