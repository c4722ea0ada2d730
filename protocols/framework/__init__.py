"""Framework of all methods: the client, its settings, its vectors, and the objective that it minimizes."""
