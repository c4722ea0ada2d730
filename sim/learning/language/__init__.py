"""Language models: tokenizers, bases for adapters, and the training of bases."""
