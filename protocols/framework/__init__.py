"""What every method is written with: the client (`learner`), its settings, its vectors, what it minimises."""
