"""What every method is written with: the client, its settings, its vectors, and the objective minimised."""
