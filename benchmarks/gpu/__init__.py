"""A CUDA device beside the CPU: whether it computes the same, how fast, with how many launches and waits."""
