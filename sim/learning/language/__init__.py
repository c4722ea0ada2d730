"""Language models: texts as numbers, bases that others' adapters are put on, and how they are trained."""
